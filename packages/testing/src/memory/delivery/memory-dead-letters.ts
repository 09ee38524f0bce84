import type { DeadLetters, Page, ParkedFilter, ParkedRow } from '@framework/core';
import type { MemoryAccess } from './memory-access.js';
import type { MemoryDeliveryTables, MemoryParked } from './memory-delivery-tables.js';

/** The parked events as operators see them, in memory. */
export class MemoryDeadLetters implements DeadLetters {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  find(
    filter: ParkedFilter,
    { limit, after }: { readonly limit: number; readonly after?: string },
  ): Promise<Page<ParkedRow>> {
    return this.#access.answer('deadLetters.find', (tables) => {
      const from = Number(after ?? 0);
      const rows = matching(tables, filter);
      const items = rows.slice(from, from + limit).map(parkedRow);
      return { items, next: from + limit < rows.length ? `${from + limit}` : undefined };
    });
  }

  replay(filter: ParkedFilter): Promise<number> {
    return this.#access.answer('deadLetters.replay', (tables) => {
      const rows = matching(tables, { ...filter, dead: true });
      for (const row of rows) Object.assign(row, { dead: false, attempts: 0, nextMs: tables.nowMs });
      return rows.length;
    });
  }

  skip(filter: ParkedFilter): Promise<number> {
    return this.#access.answer('deadLetters.skip', (tables) => {
      const rows = matching(tables, { ...filter, dead: true });
      for (const { handler, event } of rows) tables.parked.delete(`${handler} ${event.id}`);
      return rows.length;
    });
  }
}

function matching({ parked }: MemoryDeliveryTables, filter: ParkedFilter): readonly MemoryParked[] {
  return [...parked.values()].filter(
    ({ handler, event, dead }) =>
      (filter.handler ?? handler) === handler &&
      (filter.eventId ?? event.id) === event.id &&
      (filter.eventType ?? event.type) === event.type &&
      (filter.modelId ?? event.modelId) === event.modelId &&
      (filter.dead ?? dead) === dead,
  );
}

function parkedRow({ handler, event, attempts, error, dead, parkedMs, nextMs }: MemoryParked): ParkedRow {
  return {
    handler,
    event: structuredClone(event),
    attempts,
    error,
    dead,
    parkedDate: new Date(parkedMs),
    nextAttemptDate: dead ? undefined : new Date(nextMs),
  };
}
