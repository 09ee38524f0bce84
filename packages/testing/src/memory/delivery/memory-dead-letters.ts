import { InvalidCursorError, type Page } from '@framework/core';
import {
  type BlockedFilter,
  type BlockedModel,
  type BlockedRow,
  type DeadLetters,
  type DeadLettersStep,
  type DeliverableEvent,
  type StepPlace,
  pageSize,
  positionAfter,
} from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import { attemptsOf, eventsFrom, moveTo, untried } from './memory-blocked-models.js';
import { type MemoryBlocked, type MemoryDeliveryTables, modelKey } from './memory-delivery-tables.js';

/** The heads of the blocked models in memory, for operators. */
export class MemoryDeadLetters implements DeadLetters {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  find(filter: BlockedFilter, place: StepPlace): Promise<Page<BlockedRow>> {
    return this.#access.answer('deadLetters.find', (tables) => {
      const { rows, next } = page(tables, filter, place);
      return { items: rows.map(blockedRow), next };
    });
  }

  countBlocked(filter: BlockedFilter, countMax: number): Promise<number> {
    return this.#access.answer('deadLetters.countBlocked', (tables) =>
      Math.min(matching(tables, filter).length, countMax),
    );
  }

  headOf(model: BlockedModel): Promise<BlockedRow | undefined> {
    return this.#access.answer('deadLetters.headOf', (tables) => {
      const row = tables.blocked.get(modelKey(model.handler, model));
      const head = row && headOf(tables, row);
      return head && blockedRow(head);
    });
  }

  replay(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
    return this.#access.answer('deadLetters.replay', (tables) => {
      if (filter.dead === false) return { count: 0, next: undefined };
      const { rows, next } = page(tables, { ...filter, dead: true }, step);
      for (const { row } of rows) {
        const { error, doneIds } = row;
        const uncounted = row.uncounted + 1;
        Object.assign(row, { ...untried(), uncounted, error, doneIds, nextMs: tables.nowMs });
      }
      return { count: rows.length, next };
    });
  }

  skip(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
    return this.#access.answer('deadLetters.skip', (tables) => {
      const { rows, next } = page(tables, { ...filter, dead: filter.dead ?? true }, step);
      for (const { row, event } of rows) moveTo(tables, row, positionAfter(event));
      return { count: rows.length, next };
    });
  }
}

/** A blocked model with the event at its head. */
interface MemoryHead {
  readonly row: MemoryBlocked;
  readonly event: DeliverableEvent;
}

/** The head of a blocked model; `undefined` when the log has no event there. */
function headOf(tables: MemoryDeliveryTables, row: MemoryBlocked): MemoryHead | undefined {
  const event = row.event ?? eventsFrom(tables, row)[0];
  return event && { row, event };
}

/** A limited number of the matching heads, the oldest first. */
function page(
  tables: MemoryDeliveryTables,
  filter: BlockedFilter,
  { limit, after = '-1' }: StepPlace,
): { readonly rows: readonly MemoryHead[]; readonly next: string | undefined } {
  if (!/^-?\d+$/.test(after)) throw new InvalidCursorError(after);
  const behind = matching(tables, filter)
    .filter(({ row: { serial } }) => serial > Number(after))
    .sort((one, other) => one.row.serial - other.row.serial);
  const size = pageSize(limit);
  const rows = behind.slice(0, size);
  return { rows, next: behind.length > size ? `${rows.at(-1)?.row.serial}` : undefined };
}

/** The failed heads of all blocked models that match. */
export function matching(tables: MemoryDeliveryTables, filter: BlockedFilter): readonly MemoryHead[] {
  return [...tables.blocked.values()]
    .flatMap((row) => (row.event === undefined ? [] : { row, event: row.event }))
    .filter(
      ({ row: { handler, dead, error }, event }) =>
        (filter.handler ?? handler) === handler &&
        (filter.eventId ?? event.id) === event.id &&
        (filter.eventType ?? event.type) === event.type &&
        (filter.modelId ?? event.modelId) === event.modelId &&
        (filter.dead ?? dead) === dead &&
        (filter.errorLine === undefined || filter.errorLine === firstLine(error)),
    );
}

/** The first line of an error, cut off as in {@link BlockedFilter}. Characters are counted as PostgreSQL does: by code points. */
export function firstLine(error = ''): string {
  return Array.from(error.split('\n')[0] ?? '')
    .slice(0, errorLineMax)
    .join('');
}

/** How many characters of an error's first line a filter compares. */
const errorLineMax = 200;

function blockedRow({ row, event }: MemoryHead): BlockedRow {
  const { handler, uncounted, error, dead, blockedMs } = row;
  return {
    handler,
    event: structuredClone(event),
    attempts: attemptsOf(row),
    uncounted,
    error,
    dead,
    blockedDate: new Date(blockedMs),
    nextAttemptDate: dead ? undefined : new Date(row.nextMs),
  };
}
