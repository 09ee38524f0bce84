import {
  type AttemptCounts,
  type BlockedAttempt,
  type BlockedFailure,
  type BlockedHead,
  type BlockedModel,
  type BlockedModels,
  type BlockedMove,
  type BlockedPlace,
  type DeliverableEvent,
  type DuePlace,
  type LeasedModel,
  type HandledEvent,
  type ModelPosition,
  comparePositions,
} from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import {
  type MemoryBlocked,
  type MemoryDeliveryTables,
  boundedCopy,
  modelKey,
  waits,
} from './memory-delivery-tables.js';
import { lostLeases } from './memory-slot-leases.js';

/** Models that are held come before all that have failed, however long those have been due. */
const heldSinceMs = 36_525 * 86_400_000;

/** Stores the models whose events wait for handlers, in memory. */
export class MemoryBlockedModels implements BlockedModels {
  readonly #access: MemoryAccess;
  readonly #end: number;

  /** @param end how many of the log's first events are read. Default: all */
  constructor(access: MemoryAccess, end: number = Infinity) {
    this.#access = access;
    this.#end = end;
  }

  fail(failures: readonly BlockedFailure[]): Promise<readonly string[]> {
    return this.#access.answer('blocked.fail', (tables) => {
      const places = failures.map(({ handler, token, event: { slot } }) => ({ handler, slot, token }));
      for (const failure of failures) {
        const { handler, token, event } = failure;
        if (tables.holds(handler, event.slot, token)) fail(tables, failure);
      }
      return lostLeases(tables, places);
    });
  }

  hold(
    events: readonly { readonly handler: string; readonly token: string; readonly event: DeliverableEvent }[],
  ): Promise<readonly string[]> {
    return this.#access.answer('blocked.hold', (tables) => {
      const places = events.map(({ handler, token, event: { slot } }) => ({ handler, slot, token }));
      for (const { handler, token, event } of events) {
        if (!tables.holds(handler, event.slot, token) || tables.blocked.has(modelKey(handler, event)))
          continue;
        add(tables, handler, event).nextMs = tables.nowMs - heldSinceMs;
      }
      return lostLeases(tables, places);
    });
  }

  models(
    places: readonly BlockedPlace[],
    { limit, after }: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly (BlockedModel & Pick<BlockedHead, 'hasFailed'>)[]> {
    return this.#access.answer('blocked.models', (tables) =>
      rowsIn(tables, places)
        .map(({ handler, slot, modelName, modelId, event }) => ({
          handler,
          slot,
          modelName,
          modelId,
          hasFailed: event !== undefined,
        }))
        .filter((model) => after === undefined || placeOf(model) > placeOf(after))
        .sort((one, other) => (placeOf(one) < placeOf(other) ? -1 : 1))
        .slice(0, limit),
    );
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
      const due = waitingRows(tables, places)
        .filter((row) => {
          const place = places.find(({ handler, slot }) => handler === row.handler && slot === row.slot);
          const waitMs = row.nextMs - tables.nowMs;
          const isDue = waitMs <= 0 || waitMs > (place?.waitMaxMs ?? Infinity);
          return isDue && !left.has(placeOf(row));
        })
        .sort(byDue);
      const taken = [...Map.groupBy(due, ({ handler }) => handler)].flatMap(([name, ofHandler]) => {
        const headsMax = places.find(({ handler }) => handler === name)?.headsMax ?? limit;
        return ofHandler.slice(0, Math.min(limit, headsMax));
      });
      return taken
        .filter(({ handler, slot }) => tables.leaseOf(handler, slot).timeline === tables.timeline)
        .sort(byDue)
        .map((row) => headOfRow(tables, row, bytesMax, this.#end));
    });
  }

  nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined> {
    return this.#access.answer('blocked.nextDueMs', (tables) => {
      const waiting = waitingRows(tables, places);
      if (waiting.length === 0) return undefined;
      return Math.max(0, Math.min(...waiting.map(({ nextMs }) => nextMs)) - tables.nowMs);
    });
  }

  begin(
    attempts: readonly { readonly head: BlockedHead; readonly attempt: BlockedAttempt }[],
  ): Promise<readonly boolean[]> {
    return this.#access.answer('blocked.begin', (tables) =>
      attempts.map(({ head, attempt: { id, counted } }) => {
        const row = tables.blocked.get(modelKey(head.handler, head));
        if (row === undefined || row.dead || !tables.holds(head.handler, head.slot, head.token)) return false;
        const place = head.event ?? head.position;
        if (![head.position, place].some((each) => comparePositions(row.position, each) === 0)) return false;
        if (!row.openAttempts.has(id) && !hasCounts(row, head)) return false;
        row.position = { modelVersion: place.modelVersion, ordinal: place.ordinal };
        row.openAttempts.add(id);
        if (counted) row.loneAttempts.add(id);
        else row.loneAttempts.delete(id);
        tables.writes.attempts++;
        return true;
      }),
    );
  }

  giveBack(model: BlockedModel, { id }: BlockedAttempt): Promise<void> {
    return this.#access.answer('blocked.giveBack', ({ blocked }) => {
      const row = blocked.get(modelKey(model.handler, model));
      row?.openAttempts.delete(id);
      row?.loneAttempts.delete(id);
    });
  }

  read(
    models: readonly (LeasedModel & { readonly position: ModelPosition })[],
    limit: number,
    bytesMax = Infinity,
  ): Promise<readonly (readonly DeliverableEvent[])[]> {
    return this.#access.answer('blocked.read', (tables) =>
      models.map((model) =>
        tables.holds(model.handler, model.slot, model.token)
          ? eventsFrom(tables, model, this.#end)
              .slice(0, limit)
              .map((event) => boundedCopy(event, bytesMax))
          : [],
      ),
    );
  }

  move(moves: readonly BlockedMove[]): Promise<readonly string[]> {
    return this.#access.answer('blocked.move', (tables) => {
      for (const { ends, position, keepsAttempts, ...model } of moves) {
        const key = modelKey(model.handler, model);
        const row = tables.blocked.get(key);
        if (row === undefined || !tables.holds(model.handler, model.slot, model.token)) continue;
        const order = comparePositions(row.position, position);
        if (ends && (order < 0 || (order === 0 && row.event === undefined))) tables.blocked.delete(key);
        else if (order < 0) moveTo(tables, row, position, keepsAttempts);
        tables.writes.blocked++;
      }
      return lostLeases(tables, moves);
    });
  }

  /** A database in memory holds its shards from the beginning, so no other database can have the events. */
  mayComeAgain<Event extends HandledEvent>(events: readonly Event[]): Promise<readonly Event[]> {
    return this.#access.answer('blocked.mayComeAgain', (tables) =>
      events.filter(({ handler, eventId }) => {
        const index = tables.log.findIndex(({ id }) => id === eventId);
        const event = tables.log[index];
        if (event === undefined) return false;
        const isPassed = index < tables.cursor(handler, event.slot);
        return waits(tables, handler, event) || (tables.handlers.has(handler) && !isPassed);
      }),
    );
  }
}

function placeOf({ slot, handler, modelName, modelId }: BlockedModel): string {
  return JSON.stringify([slot, handler, modelName, modelId]);
}

function add(tables: MemoryDeliveryTables, handler: string, event: DeliverableEvent): MemoryBlocked {
  const { slot, modelName, modelId, modelVersion, ordinal } = event;
  const row: MemoryBlocked = {
    handler,
    slot,
    modelName,
    modelId,
    position: { modelVersion, ordinal },
    event: undefined,
    ...untried(),
    nextMs: tables.nowMs,
    blockedMs: tables.nowMs,
    serial: tables.writes.blocked,
  };
  tables.blocked.set(modelKey(handler, event), row);
  tables.writes.blocked++;
  return row;
}

export function untried(): Omit<AttemptState, 'nextMs'> {
  const none = { attempts: 0, uncounted: 0, error: undefined, dead: false, doneIds: [] };
  return { ...none, openAttempts: new Set(), loneAttempts: new Set() };
}

type AttemptState = Pick<
  MemoryBlocked,
  'attempts' | 'uncounted' | 'openAttempts' | 'loneAttempts' | 'error' | 'nextMs' | 'dead' | 'doneIds'
>;

export function moveTo(
  tables: MemoryDeliveryTables,
  row: MemoryBlocked,
  position: ModelPosition,
  keepsAttempts = false,
): void {
  const { doneIds, openAttempts } = row;
  const kept = { doneIds, ...(keepsAttempts && { openAttempts }) };
  Object.assign(row, { position, event: undefined, ...untried(), ...kept, nextMs: tables.nowMs });
}

function fail(tables: MemoryDeliveryTables, failure: BlockedFailure): void {
  const { handler, event: given, attempt, before, doneIds = [] } = failure;
  // The complete event, as in the log.
  const event = tables.log.find(({ id }) => id === given.id) ?? given;
  const known = tables.blocked.get(modelKey(handler, event));
  if (known === undefined && (attempt !== undefined || before !== undefined)) return;
  const row = known ?? add(tables, handler, event);
  const order = comparePositions(row.position, event);
  if (order > 0 || (order === 0 && !isNews(row, attempt, before))) return;
  const { attempts, uncounted, error, dead, retryAfterMs } = failure;
  const { modelVersion, ordinal } = event;
  const isPostponed = order === 0 && attempt === undefined && before?.attempts === attempts && !dead;
  const { openAttempts, loneAttempts } = isPostponed ? row : untried();
  const counts = { attempts: isPostponed ? row.attempts : attempts, uncounted, openAttempts, loneAttempts };
  const state = { ...counts, error, dead, doneIds };
  const nextMs = tables.nowMs + (retryAfterMs ?? 0);
  Object.assign(row, { position: { modelVersion, ordinal }, event, ...state, nextMs });
  tables.blockedEver.add(`${handler} ${event.id}`);
}

/** Whether the failure is not recorded yet. */
function isNews(
  row: MemoryBlocked,
  attempt: BlockedAttempt | undefined,
  before: AttemptCounts = { attempts: 0, uncounted: 0 },
): boolean {
  return attempt === undefined ? !row.dead && hasCounts(row, before) : row.openAttempts.has(attempt.id);
}

/** How many attempts count. */
export function attemptsOf({ attempts, loneAttempts }: MemoryBlocked): number {
  return attempts + loneAttempts.size;
}

function hasCounts(row: MemoryBlocked, { attempts, uncounted }: AttemptCounts): boolean {
  return attemptsOf(row) === attempts && row.uncounted === uncounted;
}

function headOfRow(
  tables: MemoryDeliveryTables,
  row: MemoryBlocked,
  bytesMax: number,
  end: number,
): BlockedHead {
  const { handler, slot, modelName, modelId, position, event, openAttempts, uncounted, doneIds } = row;
  const first = event ?? eventsFrom(tables, row, end)[0];
  return {
    handler,
    slot,
    token: tables.token(handler, slot),
    modelName,
    modelId,
    position,
    event: first && boundedCopy(first, bytesMax),
    hasFailed: event !== undefined,
    attempts: attemptsOf(row),
    openCount: openAttempts.size,
    uncounted,
    doneIds,
  };
}

/** The events of a model from a position on. */
export function eventsFrom(
  { log }: MemoryDeliveryTables,
  {
    modelName,
    modelId,
    position,
  }: Pick<BlockedModel, 'modelName' | 'modelId'> & { readonly position: ModelPosition },
  end = Infinity,
): readonly DeliverableEvent[] {
  return log
    .slice(0, end)
    .filter(
      (event) =>
        event.modelName === modelName && event.modelId === modelId && comparePositions(event, position) >= 0,
    )
    .sort(comparePositions);
}

/** Orders rows by due time, the earliest first. */
function byDue(one: MemoryBlocked, other: MemoryBlocked): number {
  return one.nextMs - other.nextMs;
}

function rowsIn(
  { blocked }: MemoryDeliveryTables,
  places: readonly BlockedPlace[],
): readonly MemoryBlocked[] {
  const held = new Set(places.map(({ handler, slot }) => `${handler} ${slot}`));
  return [...blocked.values()].filter(({ handler, slot }) => held.has(`${handler} ${slot}`));
}

/** The models whose head is no dead letter, of handlers that are not paused. */
function waitingRows(tables: MemoryDeliveryTables, places: readonly BlockedPlace[]): MemoryBlocked[] {
  return rowsIn(tables, places).filter(({ dead, handler }) => !dead && tables.handlers.get(handler) !== true);
}
