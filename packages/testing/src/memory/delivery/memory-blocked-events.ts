import { InvalidCursorError, InvariantViolationError, type Page } from '@framework/core';
import {
  type BlockedAttempt,
  type BlockedEvent,
  type BlockedEvents,
  type BlockedFilter,
  type BlockedHead,
  type BlockedModel,
  type BlockedOutcome,
  type BlockedPlace,
  type BlockedRow,
  type DeadLetters,
  type DeadLettersStep,
  type DuePlace,
  type HandledEvent,
  type LeasedModel,
  type StepPlace,
  pageSize,
} from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import {
  type MemoryDeliveryTables,
  type MemoryBlocked,
  boundedCopy,
  dueMs,
  inOrder,
} from './memory-delivery-tables.js';
import { lostLeases } from './memory-slot-leases.js';

/** Stores the events that are blocked for handlers, in memory. */
export class MemoryBlockedEvents implements BlockedEvents {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  block(events: readonly BlockedEvent[]): Promise<readonly string[]> {
    return this.#access.answer('blocked.block', (tables) => {
      const { blocked, nowMs } = tables;
      for (const { token, retryAfterMs, ...given } of events) {
        // The complete event, as in the log.
        const logged = tables.log.find(({ id }) => id === given.event.id) ?? given.event;
        const event = { ...given, event: logged };
        const key = `${event.handler} ${event.event.id}`;
        if (!tables.holds(event.handler, event.event.slot, token) || blocked.has(key)) continue;
        if (logged.omitted === true)
          throw new InvariantViolationError(
            `Event ${logged.id} is missing from the log: find out what deleted it`,
          );
        const nextMs = retryAfterMs === undefined ? undefined : nowMs + retryAfterMs;
        const state = { nextMs, blockedMs: nowMs, serial: tables.writes.blocked };
        blocked.set(key, { ...event, ...state, openAttempts: new Set() });
        tables.blockedEver.add(key);
        tables.writes.blocked++;
      }
      return lostLeases(
        tables,
        events.map(({ handler, event, token }) => ({ handler, slot: event.slot, token })),
      );
    });
  }

  models(
    places: readonly BlockedPlace[],
    { limit, after }: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly BlockedModel[]> {
    return this.#access.answer('blocked.models', (tables) =>
      models(tables, places)
        .filter((model) => after === undefined || placeOf(model) > placeOf(after))
        .sort((one, other) => (placeOf(one) < placeOf(other) ? -1 : 1))
        .slice(0, limit),
    );
  }

  stillBlocked(asked: readonly LeasedModel[]): Promise<readonly BlockedModel[]> {
    return this.#access.answer('blocked.stillBlocked', (tables) => {
      const blocked = new Set(models(tables, asked).map(placeOf));
      return asked
        .filter(
          (model) => blocked.has(placeOf(model)) || !tables.holds(model.handler, model.slot, model.token),
        )
        .map(({ token: _token, ...model }) => model);
    });
  }

  dueHeads(
    places: readonly DuePlace[],
    limit: number,
    {
      bytesMax = Infinity,
      except = [],
    }: { readonly bytesMax?: number; readonly except?: readonly BlockedModel[] } = {},
  ): Promise<readonly BlockedHead[]> {
    return this.#access.answer('blocked.dueHeads', (tables) => {
      const left = new Set(except.map(placeOf));
      const due = waitingHeads(tables, places)
        .filter((row) => {
          const { handler, event } = row;
          const place = places.find((each) => each.handler === handler && each.slot === event.slot);
          const waitMs = dueMs(row) - tables.nowMs;
          const isDue = waitMs <= 0 || waitMs > (place?.waitMaxMs ?? Infinity);
          return isDue && !left.has(placeOf({ ...event, handler }));
        })
        .sort(byDue);
      const taken = [...Map.groupBy(due, ({ handler }) => handler)].flatMap(([name, ofHandler]) => {
        const headsMax = places.find(({ handler }) => handler === name)?.headsMax ?? limit;
        return ofHandler.slice(0, Math.min(limit, headsMax));
      });
      return taken.sort(byDue).map(({ handler, event, attempts, openAttempts, uncounted, suspect }) => ({
        handler,
        event: boundedCopy(event, bytesMax),
        attempts,
        openCount: openAttempts.size,
        uncounted,
        suspect,
        token: tables.token(handler, event.slot),
      }));
    });
  }

  suspectPlaces(places: readonly BlockedPlace[]): Promise<readonly BlockedPlace[]> {
    return this.#access.answer('blocked.suspectPlaces', (tables) => {
      const due = heads(tables, places)
        .filter((row) => !row.dead && dueMs(row) <= tables.nowMs)
        .sort(byDue);
      const first = Map.groupBy(due, ({ handler, event }) => `${handler} ${event.slot}`);
      return places.filter(({ handler, slot }) => first.get(`${handler} ${slot}`)?.[0]?.suspect === true);
    });
  }

  nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined> {
    return this.#access.answer('blocked.nextDueMs', (tables) => {
      const waiting = waitingHeads(tables, places);
      if (waiting.length === 0) return undefined;
      return Math.max(0, Math.min(...waiting.map(dueMs)) - tables.nowMs);
    });
  }

  beginAttempt(
    { handler, event, token, attempts, uncounted }: BlockedHead,
    { id, counted }: BlockedAttempt,
    before?: BlockedAttempt,
  ): Promise<boolean> {
    return this.#access.answer('blocked.beginAttempt', (tables) => {
      const row = tables.blocked.get(`${handler} ${event.id}`);
      if (row === undefined || row.dead || !tables.holds(handler, event.slot, token)) return false;
      const { openAttempts } = row;
      if (openAttempts.has(id)) return true;
      const isAsBefore = row.attempts === attempts && row.uncounted === uncounted;
      if (before === undefined ? !isAsBefore : !openAttempts.delete(before.id)) return false;
      row.attempts += Number(counted) - Number(before?.counted ?? false);
      openAttempts.add(id);
      tables.writes.attempts++;
      return true;
    });
  }

  endAttempt(
    { handler, event, token, attempts, uncounted }: BlockedHead,
    attempt: BlockedAttempt | undefined,
    outcome: BlockedOutcome,
  ): Promise<boolean> {
    return this.#access.answer('blocked.endAttempt', (tables) => {
      const key = `${handler} ${event.id}`;
      const row = tables.blocked.get(key);
      if (!tables.holds(handler, event.slot, token)) return false;
      if (row === undefined) return true;
      if (outcome.kind === 'done') {
        tables.blocked.delete(key);
        return true;
      }
      const isAsBefore = !row.dead && row.attempts === attempts && row.uncounted === uncounted;
      if (attempt === undefined ? !isAsBefore : !row.openAttempts.has(attempt.id)) return true;
      row.error = outcome.error;
      row.dead = outcome.kind === 'dead';
      const counts = outcome.kind !== 'postponed';
      if (!counts) row.uncounted++;
      if (attempt !== undefined) {
        row.attempts += Number(counts) - Number(attempt.counted);
        row.suspect = false;
        row.openAttempts.clear();
      }
      if (outcome.kind === 'dead') row.openAttempts.clear();
      else row.nextMs = tables.nowMs + outcome.retryAfterMs;
      return true;
    });
  }

  giveBackAttempt({ handler, event }: BlockedHead, { id, counted }: BlockedAttempt): Promise<void> {
    return this.#access.answer('blocked.giveBackAttempt', ({ blocked }) => {
      const row = blocked.get(`${handler} ${event.id}`);
      if (row?.openAttempts.delete(id) === true && counted) row.attempts--;
    });
  }

  /** A database in memory holds its shards from the beginning, so no other database can have the events. */
  mayComeAgain<Event extends HandledEvent>(events: readonly Event[]): Promise<readonly Event[]> {
    return this.#access.answer('blocked.mayComeAgain', (tables) =>
      events.filter(({ handler, eventId }) => {
        const index = tables.log.findIndex(({ id }) => id === eventId);
        const slot = tables.log[index]?.slot;
        const isPassed = slot === undefined || index < tables.cursor(handler, slot);
        return tables.blocked.has(`${handler} ${eventId}`) || (tables.handlers.has(handler) && !isPassed);
      }),
    );
  }
}

/** Orders rows by due time, the earliest first. */
function byDue(one: MemoryBlocked, other: MemoryBlocked): number {
  return dueMs(one) - dueMs(other);
}

function models(tables: MemoryDeliveryTables, places: readonly BlockedPlace[]): BlockedModel[] {
  return heads(tables, places).map(({ handler, event: { slot, modelName, modelId } }) => ({
    handler,
    slot,
    modelName,
    modelId,
  }));
}

function placeOf({ slot, handler, modelName, modelId }: BlockedModel): string {
  return JSON.stringify([slot, handler, modelName, modelId]);
}

/** The first blocked event of each model for each handler. */
function heads({ blocked }: MemoryDeliveryTables, places: readonly BlockedPlace[]): readonly MemoryBlocked[] {
  const held = new Set(places.map(({ handler, slot }) => `${handler} ${slot}`));
  const rows = [...blocked.values()]
    .filter(({ handler, event }) => held.has(`${handler} ${event.slot}`))
    .sort(inOrder);
  const byModel = Map.groupBy(
    rows,
    ({ handler, event: { modelName, modelId } }) => `${handler}\0${modelName}\0${modelId}`,
  );
  return [...byModel.values()].flatMap(([first]) => first ?? []);
}

/** The first blocked events that are not dead letters, of handlers that are not paused. */
function waitingHeads(tables: MemoryDeliveryTables, places: readonly BlockedPlace[]): MemoryBlocked[] {
  return heads(tables, places).filter(({ dead, handler }) => !dead && tables.handlers.get(handler) !== true);
}

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

  firstOf({ slot, handler, modelName, modelId }: BlockedModel): Promise<BlockedRow | undefined> {
    return this.#access.answer('deadLetters.firstOf', (tables) => {
      const first = heads(tables, [{ handler, slot }]).find(
        ({ event }) => event.modelName === modelName && event.modelId === modelId,
      );
      return first && blockedRow(first);
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
  if (!/^-?\d+$/.test(after)) throw new InvalidCursorError(after);
  const behind = matching(tables, filter)
    .filter(({ serial }) => serial > Number(after))
    .sort((one, other) => one.serial - other.serial);
  const size = pageSize(limit);
  const rows = behind.slice(0, size);
  return { rows, next: behind.length > size ? `${rows.at(-1)?.serial}` : undefined };
}

/** All blocked events that match. */
export function matching({ blocked }: MemoryDeliveryTables, filter: BlockedFilter): readonly MemoryBlocked[] {
  return [...blocked.values()].filter(
    ({ handler, event, dead, error }) =>
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
