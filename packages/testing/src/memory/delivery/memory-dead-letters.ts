import {
  type DeadLetters,
  type DeadLettersStep,
  type Page,
  type ParkedFilter,
  type ParkedRow,
  type StepPlace,
  pageSize,
} from '@framework/core';

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
      const { rows, next } = page(tables, filter, { limit, ...(after !== undefined && { after }) });
      return { items: rows.map(parkedRow), next };
    });
  }

  replay(filter: ParkedFilter, step: StepPlace): Promise<DeadLettersStep> {
    return this.#access.answer('deadLetters.replay', (tables) => {
      if (filter.dead === false) return { count: 0, next: undefined };
      const { rows, next } = page(tables, { ...filter, dead: true }, step);
      for (const row of rows) {
        Object.assign(row, { dead: false, attempts: 0, uncounted: 0, suspect: false, nextMs: tables.nowMs });
        row.openAttempts.clear();
      }
      return { count: rows.length, next };
    });
  }

  skip(filter: ParkedFilter, step: StepPlace): Promise<DeadLettersStep> {
    return this.#access.answer('deadLetters.skip', (tables) => {
      const { rows, next } = page(tables, { ...filter, dead: filter.dead ?? true }, step);
      for (const { handler, event } of rows) tables.parked.delete(`${handler} ${event.id}`);
      return { count: rows.length, next };
    });
  }
}

/** A bounded number of the rows that match, the oldest first. */
function page(
  tables: MemoryDeliveryTables,
  filter: ParkedFilter,
  { limit, after = '-1' }: StepPlace,
): { readonly rows: readonly MemoryParked[]; readonly next: string | undefined } {
  const behind = matching(tables, filter)
    .filter(({ serial }) => serial > Number(after))
    .sort((one, other) => one.serial - other.serial);
  const size = pageSize(limit);
  const rows = behind.slice(0, size);
  return { rows, next: behind.length > size ? `${rows.at(-1)?.serial}` : undefined };
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

function parkedRow({ parkedMs, nextMs, ...row }: MemoryParked): ParkedRow {
  const { handler, event, attempts, uncounted, error, dead } = row;
  return {
    handler,
    event: structuredClone(event),
    attempts,
    uncounted,
    error,
    dead,
    parkedDate: new Date(parkedMs),
    nextAttemptDate: dead || nextMs === undefined ? undefined : new Date(nextMs),
  };
}
