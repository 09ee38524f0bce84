import { InvalidCursorError, type Page } from '@framework/core';
import { type EventLog, type LoggedEvent, pageSize } from '@framework/core/adapter';

import { faithfulCopy } from './memory-row.js';
import type { MemoryReads } from './memory-tables.js';

/** The log of one shard in memory. */
export class MemoryEventLog implements EventLog {
  readonly #manager: MemoryReads;

  constructor(manager: MemoryReads) {
    this.#manager = manager;
  }

  async findByModel(
    model: { readonly name: string; readonly id: string },
    { limit, after }: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<LoggedEvent>> {
    const size = pageSize(limit);
    const [version, ordinal] = after === undefined ? [0, 0] : parseCursor(after);
    const logged = await this.#manager.read(() => this.#manager.events(), 'find-events');
    const events = logged
      .filter(({ modelId, modelName }) => modelId === model.id && modelName === model.name)
      .sort((one, other) => one.modelVersion - other.modelVersion || one.ordinal - other.ordinal)
      .filter(
        (event) =>
          event.modelVersion > version || (event.modelVersion === version && event.ordinal > ordinal),
      );
    const items = events.slice(0, size).map(loggedEvent);
    const last = items.at(-1);
    const next =
      events.length > size && last !== undefined ? `${last.modelVersion}.${last.ordinal}` : undefined;
    return { items, next };
  }
}

function parseCursor(cursor: string): readonly [version: number, ordinal: number] {
  const [, version, ordinal] = /^(\d{1,15})\.(\d{1,9})$/.exec(cursor) ?? [];
  if (version === undefined || ordinal === undefined) throw new InvalidCursorError(cursor);
  return [Number(version), Number(ordinal)];
}

function loggedEvent(event: LoggedEvent): LoggedEvent {
  return {
    id: event.id,
    actionId: event.actionId,
    actionName: event.actionName,
    principal: event.principal,
    ordinal: event.ordinal,
    modelId: event.modelId,
    modelName: event.modelName,
    modelVersion: event.modelVersion,
    type: event.type,
    payload: faithfulCopy(event.payload, event.type),
    createdDate: event.createdDate,
  };
}
