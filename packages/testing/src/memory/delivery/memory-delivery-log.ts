import { InvalidCursorError, InvariantViolationError } from '@framework/core';
import {
  type Cursor,
  type DeliverableEvent,
  type DeliveryLog,
  type EventBatch,
  HistoryChangedError,
} from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import { type MemoryDeliveryTables, boundedCopy } from './memory-delivery-tables.js';

/** A log in memory. Events are in the order of their commits, and reads return copies. */
export class MemoryDeliveryLog implements DeliveryLog {
  readonly #access: MemoryAccess;
  readonly #end: number;

  /** @param end how many of the log's first events are returned. Default: all */
  constructor(access: MemoryAccess, end: number = Infinity) {
    this.#access = access;
    this.#end = end;
  }

  read(
    slots: readonly number[],
    cursor: Cursor,
    limit: number,
    bytesMax: number = Infinity,
  ): Promise<EventBatch> {
    return this.#access.answer('log.read', (tables) => {
      const { log } = tables;
      const events: DeliverableEvent[] = [];
      const from = parsePlace(tables, cursor);
      if (from === undefined) throw new HistoryChangedError();
      const visible = log.slice(from, this.#end);
      for (const [index, event] of visible.entries()) {
        if (!slots.includes(event.slot)) continue;
        if (events.length === limit) return { events, next: formatPlace(tables, from + index), more: true };
        events.push(boundedCopy(event, bytesMax));
      }
      return { events, next: formatPlace(tables, from + visible.length), more: false };
    });
  }

  load(handler: string, events: readonly DeliverableEvent[]): Promise<readonly DeliverableEvent[]> {
    return this.#access.answer('log.load', ({ log, blocked }) =>
      events.map(({ id }) => {
        const found = blocked.get(`${handler} ${id}`)?.event ?? log.find((event) => event.id === id);
        if (found === undefined) throw new InvariantViolationError(`Event ${id} is missing from the log`);
        return structuredClone(found);
      }),
    );
  }

  find(eventId: string): Promise<DeliverableEvent | undefined> {
    return this.#access.answer('log.find', ({ log }) => {
      const found = log.find(({ id }) => id === eventId);
      return found && structuredClone(found);
    });
  }
}

/** The cursor after this many events of the log, in the current history. */
export function formatPlace({ timeline }: MemoryDeliveryTables, place: number): Cursor {
  return `${place}@${timeline}`;
}

/**
 * How many events of the log come before a cursor; `undefined` if the cursor was read before a failover.
 *
 * @throws InvalidCursorError `invalid-cursor` when the text is not a cursor
 */
export function parsePlace({ timeline }: MemoryDeliveryTables, cursor: Cursor): number | undefined {
  const [, place, learntIn] = /^(\d+)@(\d+)$/.exec(cursor) ?? [];
  if (place === undefined) throw new InvalidCursorError(cursor);
  return Number(learntIn) === timeline ? Number(place) : undefined;
}
