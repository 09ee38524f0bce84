import type {
  Cursor,
  CursorMove,
  DeliverableEvent,
  DeliveryStore,
  EventBatch,
  HandlerCursor,
  HandlerLag,
  HandlerRegistration,
  LeasedSlot,
  Page,
  ParkedEvent,
  ParkedFilter,
  ParkedHead,
  ParkedModel,
  ParkedOutcome,
  ParkedRow,
  SlotLease,
} from '@framework/core';
import { type MemoryDatabase, type MemoryParked, inOrder } from './memory-database.js';

/** One process's access to a database in memory; what the process does after its death has no effect. */
export class MemoryDeliveryStore implements DeliveryStore {
  readonly #database: MemoryDatabase;
  /** How often each method was called. */
  readonly calls = new Map<string, number>();
  /** Thrown by the next calls of a method, one each. */
  readonly failures = new Map<string, unknown[]>();
  #dead = false;

  constructor(database: MemoryDatabase) {
    this.#database = database;
  }

  get slotCount(): number {
    return this.#database.slotCount;
  }

  get callCount(): number {
    return [...this.calls.values()].reduce((sum, count) => sum + count, 0);
  }

  get dead(): boolean {
    return this.#dead;
  }

  /** Ends the process: nothing that it asks for is answered or done any more. */
  kill(): void {
    this.#dead = true;
  }

  register(handlers: readonly HandlerRegistration[]): Promise<void> {
    return this.#answer('register', ({ handlers: known, cursors, parked, log, slotCount }) => {
      for (const { name, aliases, startFrom } of handlers) {
        const old = aliases.find((alias) => known.has(alias));
        if (known.has(name)) continue;
        known.set(name, old === undefined ? false : known.get(old)!);
        for (let slot = 0; slot < slotCount; slot++) {
          const cursor = old === undefined ? startOf(startFrom, log) : cursors.get(`${old} ${slot}`)!;
          cursors.set(`${name} ${slot}`, cursor);
          cursors.delete(`${old} ${slot}`);
        }
        if (old === undefined) continue;
        known.delete(old);
        for (const [key, row] of parked) {
          if (row.handler !== old) continue;
          parked.delete(key);
          parked.set(`${name} ${row.event.id}`, { ...row, handler: name });
        }
      }
    });
  }

  renewLeases(processId: string, leaseMs: number): Promise<readonly SlotLease[]> {
    return this.#answer('renewLeases', (database) => {
      const { processes, slots, nowMs } = database;
      for (const [id, untilMs] of processes) {
        if (untilMs > nowMs) continue;
        processes.delete(id);
        slots.forEach((each, slot) => each.processId === id && database.hand(slot, undefined, true));
      }
      processes.set(processId, nowMs + leaseMs);
      const fair = Math.ceil(slots.length / processes.size);
      const mine = (): number[] => [...slots.keys()].filter((slot) => slots[slot]!.processId === processId);
      for (const slot of mine().slice(fair)) database.hand(slot, undefined, false);
      const free = [...slots.keys()].filter((slot) => slots[slot]!.processId === undefined);
      for (const slot of free.slice(0, Math.max(0, fair - mine().length))) {
        database.hand(slot, processId, slots[slot]!.abandoned);
      }
      return mine().map((slot) => ({
        slot,
        token: `${slots[slot]!.token}`,
        abandoned: slots[slot]!.abandoned,
      }));
    });
  }

  releaseLeases(processId: string): Promise<void> {
    return this.#answer('releaseLeases', (database) => {
      database.processes.delete(processId);
      database.slots.forEach(
        (each, slot) => each.processId === processId && database.hand(slot, undefined, false),
      );
    });
  }

  cursors(slots: readonly number[]): Promise<readonly HandlerCursor[]> {
    return this.#answer('cursors', ({ handlers, cursors }) =>
      [...handlers].flatMap(([handler, paused]) =>
        slots.map((slot) => ({ handler, slot, cursor: `${cursors.get(`${handler} ${slot}`)}`, paused })),
      ),
    );
  }

  saveCursors(moves: readonly CursorMove[]): Promise<readonly number[]> {
    return this.#answer('saveCursors', (database) => {
      for (const { handler, slot, token, cursor } of moves) {
        if (!database.holds(slot, token)) continue;
        database.cursors.set(`${handler} ${slot}`, Number(cursor));
        database.writes.cursors++;
      }
      return lostSlots(database, moves);
    });
  }

  currentCursor(): Promise<Cursor> {
    return this.#answer('currentCursor', ({ log }) => `${log.length}`);
  }

  read(slots: readonly number[], cursor: Cursor, limit: number): Promise<EventBatch> {
    return this.#answer('read', ({ log }) => {
      const found: DeliverableEvent[] = [];
      for (let index = Number(cursor); index < log.length; index++) {
        if (!slots.includes(log[index]!.slot)) continue;
        if (found.length === limit) return { events: found, next: `${index}`, more: true };
        found.push(log[index]!);
      }
      return { events: found, next: `${log.length}`, more: false };
    });
  }

  park(events: readonly ParkedEvent[]): Promise<readonly number[]> {
    return this.#answer('park', (database) => {
      const { parked, nowMs } = database;
      for (const { token, retryAfterMs = 0, ...event } of events) {
        const key = `${event.handler} ${event.event.id}`;
        if (!database.holds(event.event.slot, token) || parked.has(key)) continue;
        parked.set(key, { ...event, nextMs: nowMs + retryAfterMs, parkedMs: nowMs });
        database.writes.parked++;
      }
      return lostSlots(
        database,
        events.map(({ event, token }) => ({ slot: event.slot, token })),
      );
    });
  }

  parkedModels(slots: readonly number[]): Promise<readonly ParkedModel[]> {
    return this.#answer('parkedModels', (database) =>
      heads(database, slots).map(({ handler, event: { slot, modelName, modelId } }) => ({
        handler,
        slot,
        modelName,
        modelId,
      })),
    );
  }

  dueHeads(slots: readonly number[], limit: number): Promise<readonly ParkedHead[]> {
    return this.#answer('dueHeads', (database) =>
      heads(database, slots)
        .filter(
          ({ dead, nextMs, handler }) => !dead && nextMs <= database.nowMs && !database.handlers.get(handler),
        )
        .sort((one, other) => one.nextMs - other.nextMs)
        .slice(0, limit)
        .map(({ handler, event, attempts, suspect }) => ({
          handler,
          event,
          attempts,
          suspect,
          token: `${database.slots[event.slot]!.token}`,
        })),
    );
  }

  nextDueMs(slots: readonly number[]): Promise<number | undefined> {
    return this.#answer('nextDueMs', (database) => {
      const waiting = heads(database, slots).filter(({ dead }) => !dead);
      if (waiting.length === 0) return undefined;
      return Math.max(0, Math.min(...waiting.map(({ nextMs }) => nextMs)) - database.nowMs);
    });
  }

  beginAttempt({ handler, event, token, attempts }: ParkedHead): Promise<boolean> {
    return this.#answer('beginAttempt', (database) => {
      const row = database.parked.get(`${handler} ${event.id}`);
      if (row === undefined || row.dead || !database.holds(event.slot, token)) return false;
      row.attempts = attempts + 1;
      database.writes.attempts++;
      return true;
    });
  }

  endAttempt({ handler, event, token }: ParkedHead, outcome: ParkedOutcome): Promise<boolean> {
    return this.#answer('endAttempt', (database) => {
      const key = `${handler} ${event.id}`;
      const row = database.parked.get(key);
      if (!database.holds(event.slot, token)) return false;
      if (row === undefined) return true;
      if (outcome.kind === 'done') {
        database.parked.delete(key);
        return true;
      }
      row.error = outcome.error;
      row.dead = outcome.kind === 'dead';
      if (outcome.kind === 'retry') row.nextMs = database.nowMs + outcome.retryAfterMs;
      return true;
    });
  }

  notify(): Promise<void> {
    return this.#answer('notify', ({ listeners, writes }) => {
      writes.notifies++;
      for (const listener of listeners) listener();
    });
  }

  listen(onHint: () => void): Promise<() => Promise<void>> {
    return this.#answer('listen', ({ listeners }) => {
      listeners.add(onHint);
      return async () => {
        listeners.delete(onHint);
      };
    });
  }

  createPartitions(): Promise<void> {
    return this.#answer('createPartitions', () => undefined);
  }

  dropPartitions(): Promise<readonly string[]> {
    return this.#answer('dropPartitions', () => []);
  }

  leases(): Promise<readonly LeasedSlot[]> {
    return this.#answer('leases', ({ slots, processes }) =>
      slots.map(({ processId }, slot) => {
        const untilMs = processes.get(processId ?? '');
        return { slot, processId, untilDate: untilMs === undefined ? undefined : new Date(untilMs) };
      }),
    );
  }

  findParked(
    filter: ParkedFilter,
    { limit, after }: { readonly limit: number; readonly after?: string },
  ): Promise<Page<ParkedRow>> {
    return this.#answer('findParked', (database) => {
      const from = Number(after ?? 0);
      const rows = matching(database, filter);
      const items = rows.slice(from, from + limit).map(parkedRow);
      return { items, next: from + limit < rows.length ? `${from + limit}` : undefined };
    });
  }

  replay(filter: ParkedFilter): Promise<number> {
    return this.#answer('replay', (database) => {
      const rows = matching(database, { ...filter, dead: true });
      for (const row of rows) Object.assign(row, { dead: false, attempts: 0, nextMs: database.nowMs });
      return rows.length;
    });
  }

  skip(filter: ParkedFilter): Promise<number> {
    return this.#answer('skip', (database) => {
      const rows = matching(database, { ...filter, dead: true });
      for (const { handler, event } of rows) database.parked.delete(`${handler} ${event.id}`);
      return rows.length;
    });
  }

  setPaused(handler: string, paused: boolean): Promise<void> {
    return this.#answer('setPaused', ({ handlers }) => {
      handlers.set(handler, paused);
    });
  }

  lag(): Promise<readonly HandlerLag[]> {
    return this.#answer('lag', ({ handlers, cursors, log, parked, nowMs }) =>
      [...handlers].map(([handler, paused]) => {
        const pending = log.filter(({ slot }, index) => index >= cursors.get(`${handler} ${slot}`)!);
        const rows = [...parked.values()].filter((row) => row.handler === handler);
        return {
          handler,
          paused,
          pendingCount: pending.length,
          oldestPendingMs: pending.length === 0 ? 0 : nowMs - pending[0]!.createdDate.getTime(),
          parkedCount: rows.length,
          deadCount: rows.filter(({ dead }) => dead).length,
        };
      }),
    );
  }

  findEvent(eventId: string): Promise<DeliverableEvent | undefined> {
    return this.#answer('findEvent', ({ log }) => log.find(({ id }) => id === eventId));
  }

  hasPassed(handler: string, { id, slot }: DeliverableEvent): Promise<boolean> {
    return this.#answer(
      'hasPassed',
      ({ log, cursors }) => log.findIndex((event) => event.id === id) < cursors.get(`${handler} ${slot}`)!,
    );
  }

  async #answer<T>(method: string, work: (database: MemoryDatabase) => T): Promise<T> {
    await Promise.resolve();
    if (this.#dead) return new Promise(() => undefined);
    this.calls.set(method, (this.calls.get(method) ?? 0) + 1);
    const failures = this.failures.get(method) ?? [];
    if (failures.length > 0) throw failures.shift();
    return work(this.#database);
  }
}

function startOf(startFrom: HandlerRegistration['startFrom'], log: readonly DeliverableEvent[]): number {
  if (startFrom === 'beginning') return 0;
  if (startFrom === 'now') return log.length;
  const first = log.findIndex(({ createdDate }) => createdDate >= startFrom.time);
  return first === -1 ? log.length : first;
}

function heads({ parked }: MemoryDatabase, slots: readonly number[]): readonly MemoryParked[] {
  const rows = [...parked.values()].filter(({ event }) => slots.includes(event.slot)).sort(inOrder);
  return [...Map.groupBy(rows, ({ handler, event }) => `${handler} ${event.modelId}`).values()].map(
    ([first]) => first!,
  );
}

function matching({ parked }: MemoryDatabase, filter: ParkedFilter): readonly MemoryParked[] {
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
    event,
    attempts,
    error,
    dead,
    parkedDate: new Date(parkedMs),
    nextAttemptDate: dead ? undefined : new Date(nextMs),
  };
}

function lostSlots(
  database: MemoryDatabase,
  writes: readonly { readonly slot: number; readonly token: string }[],
): readonly number[] {
  return [
    ...new Set(writes.filter(({ slot, token }) => !database.holds(slot, token)).map(({ slot }) => slot)),
  ];
}
