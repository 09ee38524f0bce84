import type {
  DuePlace,
  HandledEvent,
  LeasedModel,
  ParkedAttempt,
  ParkedEvent,
  ParkedEvents,
  ParkedHead,
  ParkedModel,
  ParkedOutcome,
  ParkedPlace,
} from '@framework/core';

import type { MemoryAccess } from './memory-access.js';
import {
  type MemoryDeliveryTables,
  type MemoryParked,
  boundedCopy,
  dueMs,
  inOrder,
} from './memory-delivery-tables.js';
import { lostLeases } from './memory-slot-leases.js';

/** The events that wait for handlers, in memory. */
export class MemoryParkedEvents implements ParkedEvents {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  park(events: readonly ParkedEvent[]): Promise<readonly string[]> {
    return this.#access.answer('parked.park', (tables) => {
      const { parked, nowMs } = tables;
      for (const { token, retryAfterMs, ...given } of events) {
        // As the log holds it, whole.
        const logged = tables.log.find(({ id }) => id === given.event.id) ?? given.event;
        const event = { ...given, event: logged };
        const key = `${event.handler} ${event.event.id}`;
        if (!tables.holds(event.handler, event.event.slot, token) || parked.has(key)) continue;
        const nextMs = retryAfterMs === undefined ? undefined : nowMs + retryAfterMs;
        const state = { nextMs, parkedMs: nowMs, serial: tables.writes.parked };
        parked.set(key, { ...event, ...state, openAttempts: new Set() });
        tables.parkedEver.add(key);
        tables.writes.parked++;
      }
      return lostLeases(
        tables,
        events.map(({ handler, event, token }) => ({ handler, slot: event.slot, token })),
      );
    });
  }

  models(
    places: readonly ParkedPlace[],
    { limit, after }: { readonly limit: number; readonly after?: ParkedModel | undefined },
  ): Promise<readonly ParkedModel[]> {
    return this.#access.answer('parked.models', (tables) =>
      models(tables, places)
        .filter((model) => after === undefined || placeOf(model) > placeOf(after))
        .sort((one, other) => (placeOf(one) < placeOf(other) ? -1 : 1))
        .slice(0, limit),
    );
  }

  stillParked(asked: readonly LeasedModel[]): Promise<readonly ParkedModel[]> {
    return this.#access.answer('parked.stillParked', (tables) => {
      const parked = new Set(models(tables, asked).map(placeOf));
      return asked
        .filter(
          (model) => parked.has(placeOf(model)) || !tables.holds(model.handler, model.slot, model.token),
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
    }: { readonly bytesMax?: number; readonly except?: readonly ParkedModel[] } = {},
  ): Promise<readonly ParkedHead[]> {
    return this.#access.answer('parked.dueHeads', (tables) => {
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

  suspectPlaces(places: readonly ParkedPlace[]): Promise<readonly ParkedPlace[]> {
    return this.#access.answer('parked.suspectPlaces', (tables) => {
      const due = heads(tables, places)
        .filter((row) => !row.dead && dueMs(row) <= tables.nowMs)
        .sort(byDue);
      const first = Map.groupBy(due, ({ handler, event }) => `${handler} ${event.slot}`);
      return places.filter(({ handler, slot }) => first.get(`${handler} ${slot}`)?.[0]?.suspect === true);
    });
  }

  nextDueMs(places: readonly ParkedPlace[]): Promise<number | undefined> {
    return this.#access.answer('parked.nextDueMs', (tables) => {
      const waiting = waitingHeads(tables, places);
      if (waiting.length === 0) return undefined;
      return Math.max(0, Math.min(...waiting.map(dueMs)) - tables.nowMs);
    });
  }

  beginAttempt(
    { handler, event, token, attempts, uncounted }: ParkedHead,
    { id, counted }: ParkedAttempt,
    before?: ParkedAttempt,
  ): Promise<boolean> {
    return this.#access.answer('parked.beginAttempt', (tables) => {
      const row = tables.parked.get(`${handler} ${event.id}`);
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
    { handler, event, token, attempts, uncounted }: ParkedHead,
    attempt: ParkedAttempt | undefined,
    outcome: ParkedOutcome,
  ): Promise<boolean> {
    return this.#access.answer('parked.endAttempt', (tables) => {
      const key = `${handler} ${event.id}`;
      const row = tables.parked.get(key);
      if (!tables.holds(handler, event.slot, token)) return false;
      if (row === undefined) return true;
      if (outcome.kind === 'done') {
        tables.parked.delete(key);
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

  giveBackAttempt({ handler, event }: ParkedHead, { id, counted }: ParkedAttempt): Promise<void> {
    return this.#access.answer('parked.giveBackAttempt', ({ parked }) => {
      const row = parked.get(`${handler} ${event.id}`);
      if (row?.openAttempts.delete(id) === true && counted) row.attempts--;
    });
  }

  /** Holds its shards from the beginning. */
  mayComeAgain<Event extends HandledEvent>(events: readonly Event[]): Promise<readonly Event[]> {
    return this.#access.answer('parked.mayComeAgain', (tables) =>
      events.filter(({ handler, eventId }) => {
        const index = tables.log.findIndex(({ id }) => id === eventId);
        const slot = tables.log[index]?.slot;
        const isPassed = slot === undefined || index < tables.cursor(handler, slot);
        return tables.parked.has(`${handler} ${eventId}`) || (tables.handlers.has(handler) && !isPassed);
      }),
    );
  }
}

/** The longest due first. */
function byDue(one: MemoryParked, other: MemoryParked): number {
  return dueMs(one) - dueMs(other);
}

function models(tables: MemoryDeliveryTables, places: readonly ParkedPlace[]): ParkedModel[] {
  return heads(tables, places).map(({ handler, event: { slot, modelName, modelId } }) => ({
    handler,
    slot,
    modelName,
    modelId,
  }));
}

function placeOf({ slot, handler, modelName, modelId }: ParkedModel): string {
  return JSON.stringify([slot, handler, modelName, modelId]);
}

/** The first parked event of each model, for each handler. */
function heads({ parked }: MemoryDeliveryTables, places: readonly ParkedPlace[]): readonly MemoryParked[] {
  const held = new Set(places.map(({ handler, slot }) => `${handler} ${slot}`));
  const rows = [...parked.values()]
    .filter(({ handler, event }) => held.has(`${handler} ${event.slot}`))
    .sort(inOrder);
  const byModel = Map.groupBy(
    rows,
    ({ handler, event: { modelName, modelId } }) => `${handler} ${modelName} ${modelId}`,
  );
  return [...byModel.values()].flatMap(([first]) => first ?? []);
}

/** Those that are no dead letters, of handlers that are not paused. */
function waitingHeads(tables: MemoryDeliveryTables, places: readonly ParkedPlace[]): MemoryParked[] {
  return heads(tables, places).filter(({ dead, handler }) => !dead && tables.handlers.get(handler) !== true);
}
