import type { Page } from '@framework/core';
import {
  type DeadLetters,
  type DeadLettersStep,
  type BlockedFilter,
  type BlockedRow,
  type StepPlace,
  pageSize,
} from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import type { MemoryDeliveryTables, MemoryBlocked } from './memory-delivery-tables.js';

/** The blocked events in memory, for operators. */
export class MemoryDeadLetters implements DeadLetters {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  find(
    filter: BlockedFilter,
    { limit, after }: { readonly limit: number; readonly after?: string },
  ): Promise<Page<BlockedRow>> {
    return this.#access.answer('deadLetters.find', (tables) => {
      const { rows, next } = page(tables, filter, { limit, ...(after !== undefined && { after }) });
      return { items: rows.map(blockedRow), next };
    });
  }

  replay(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
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

  skip(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
    return this.#access.answer('deadLetters.skip', (tables) => {
      const { rows, next } = page(tables, { ...filter, dead: filter.dead ?? true }, step);
      for (const { handler, event } of rows) tables.blocked.delete(`${handler} ${event.id}`);
      return { count: rows.length, next };
    });
  }
}

/** A limited number of the matching rows, the oldest first. */
function page(
  tables: MemoryDeliveryTables,
  filter: BlockedFilter,
  { limit, after = '-1' }: StepPlace,
): { readonly rows: readonly MemoryBlocked[]; readonly next: string | undefined } {
  const behind = matching(tables, filter)
    .filter(({ serial }) => serial > Number(after))
    .sort((one, other) => one.serial - other.serial);
  const size = pageSize(limit);
  const rows = behind.slice(0, size);
  return { rows, next: behind.length > size ? `${rows.at(-1)?.serial}` : undefined };
}

function matching({ blocked }: MemoryDeliveryTables, filter: BlockedFilter): readonly MemoryBlocked[] {
  return [...blocked.values()].filter(
    ({ handler, event, dead }) =>
      (filter.handler ?? handler) === handler &&
      (filter.eventId ?? event.id) === event.id &&
      (filter.eventType ?? event.type) === event.type &&
      (filter.modelId ?? event.modelId) === event.modelId &&
      (filter.dead ?? dead) === dead,
  );
}

function blockedRow({ blockedMs, nextMs, ...row }: MemoryBlocked): BlockedRow {
  const { handler, event, attempts, uncounted, error, dead } = row;
  return {
    handler,
    event: structuredClone(event),
    attempts,
    uncounted,
    error,
    dead,
    blockedDate: new Date(blockedMs),
    nextAttemptDate: dead || nextMs === undefined ? undefined : new Date(nextMs),
  };
}
