import { type Clock, InvalidCursorError } from '@framework/core';
import {
  type BlockedModel,
  type Cursor,
  type DeliverableEvent,
  type ModelPosition,
  comparePositions,
} from '@framework/core/adapter';

/** Which process holds a slot for a handler. */
export interface MemoryLease {
  readonly handler: string;
  readonly slot: number;
  readonly processId: string | undefined;
  readonly token: string;
  /** The history in which a process got the lease; 0 if no process has. In any other history, the lease has no holder until that process renews it. */
  readonly timeline: number;
  readonly abandoned: boolean;
}

/** A process that delivers. */
export interface MemoryProcess {
  /** The permanent ids of its handlers. */
  readonly handlers: readonly string[];
  /** The shards that it knows. */
  readonly shards: readonly string[];
  /** Until when it counts as alive, in milliseconds. */
  readonly untilMs: number;
  /** The duration that it requested. */
  readonly leaseMs: number;
  /** The history in which it renewed last. In another one, its lease time starts again with the first renewal of any process. */
  readonly timeline: number;
}

/** The delivery tables of a database at one moment. */
export type MemoryDeliverySnapshot = Pick<
  MemoryDeliveryTables,
  'log' | 'processes' | 'handlers' | 'names' | 'cursors' | 'blocked' | 'timeline'
> & { readonly leases: ReadonlyMap<string, MemoryLease> };

/** A blocked model of a handler, with its stored state. */
export interface MemoryBlocked extends BlockedModel {
  /** Everything before it is done. */
  position: ModelPosition;
  /** The event at the position, if it has failed. */
  event: DeliverableEvent | undefined;
  attempts: number;
  uncounted: number;
  /** The ids of the attempts at the head that have not been reported as ended. */
  readonly openAttempts: Set<string>;
  /** Those of them that count from their beginning. */
  readonly loneAttempts: Set<string>;
  error: string | undefined;
  /** The time from which the head may be tried. */
  nextMs: number;
  dead: boolean;
  /** The ids of later events that are done. */
  doneIds: readonly string[];
  readonly blockedMs: number;
  /** Increases with each model that is blocked. */
  readonly serial: number;
}

/** The delivery tables of one database in memory, shared by the stores of all processes in a test. */
export class MemoryDeliveryTables {
  readonly slotCount: number;
  /** All events, in the order of their commits. */
  readonly log: DeliverableEvent[] = [];
  readonly processes = new Map<string, MemoryProcess>();
  /** Whether each handler is paused, by permanent id. */
  readonly handlers = new Map<string, boolean>();
  /** The permanent ids of handlers, by all their names. */
  readonly names = new Map<string, string>();
  /** By handler and slot: how many of the log's first events are handled or left to blocked models. */
  readonly cursors = new Map<string, number>();
  /** The blocked models, by handler and model. */
  readonly blocked = new Map<string, MemoryBlocked>();
  /** The handlers and ids of all events that have failed in this history. One whose model has passed it was handled or skipped. */
  readonly blockedEver = new Set<string>();
  readonly listeners = new Set<() => void>();
  /** How many rows were written, by kind. */
  readonly writes = { cursors: 0, blocked: 0, attempts: 0, notifies: 0 };
  readonly #clock: Clock;
  readonly #leases = new Map<string, MemoryLease>();
  #tokenCount = 0;
  #timeline = 1;

  /** @param slotCount how many slots the log is divided into, by model id. Default 4 */
  constructor(clock: Clock, slotCount = 4) {
    this.#clock = clock;
    this.slotCount = slotCount;
  }

  /** The database's time. */
  get nowMs(): number {
    return this.#clock.now().getTime();
  }

  /** Notifies every process that listens. */
  notify(): void {
    for (const listener of this.listeners) listener();
  }

  /** Commits events that belong together. */
  commit(...events: readonly DeliverableEvent[]): void {
    this.log.push(...events);
  }

  /** The position of a handler in a slot; 0 if the handler is not registered. */
  cursor(handler: string, slot: number): number {
    return this.cursors.get(`${handler} ${slot}`) ?? 0;
  }

  /** Moves the cursors of all handlers to a position in the log. */
  moveCursors(place: number): void {
    for (const key of this.cursors.keys()) this.cursors.set(key, place);
  }

  /** The blocked models of a handler, or only one of them, by the ids of the models. */
  blockedOf(handler: string, modelId?: string): readonly MemoryBlocked[] {
    return [...this.blocked.values()]
      .filter((row) => row.handler === handler && (modelId ?? row.modelId) === row.modelId)
      .sort((one, other) => (one.modelId < other.modelId ? -1 : 1));
  }

  /** Identifies the history; changes with each {@link MemoryDeliveryTables.failOver}. */
  get timeline(): number {
    return this.#timeline;
  }

  /** The leases of all slots of all handlers. */
  get leases(): readonly MemoryLease[] {
    return [...this.#leases.values()];
  }

  /** The token of a handler's lease in a slot. */
  token(handler: string, slot: number): string {
    return this.leaseOf(handler, slot).token;
  }

  /** Whether this token is still valid for the handler's slot. */
  holds(handler: string, slot: number, token: string): boolean {
    const lease = this.leaseOf(handler, slot);
    return lease.token === token && lease.timeline === this.#timeline;
  }

  /** The lease of a handler's slot. */
  leaseOf(handler: string, slot: number): MemoryLease {
    const unheld = { handler, slot, processId: undefined, token: 'nobody', timeline: 0, abandoned: false };
    return this.#leases.get(`${handler} ${slot}`) ?? unheld;
  }

  /** Gives a slot to a process or to nobody. Later writes of an earlier holder are refused. */
  hand(
    { handler, slot }: Pick<MemoryLease, 'handler' | 'slot'>,
    processId: string | undefined,
    abandoned: boolean,
  ): void {
    const token = `${this.#timeline}.${++this.#tokenCount}`;
    const timeline = processId === undefined ? this.leaseOf(handler, slot).timeline : this.#timeline;
    this.#leases.set(`${handler} ${slot}`, { handler, slot, processId, token, timeline, abandoned });
  }

  /** Marks a slot as abandoned no more; its lease stays the same. */
  recover(lease: MemoryLease): void {
    this.#leases.set(`${lease.handler} ${lease.slot}`, { ...lease, abandoned: false });
  }

  /** Marks the holder of every slot as vanished. */
  abandonAll(): void {
    for (const lease of this.leases) this.hand(lease, undefined, true);
  }

  /** Deletes a handler with everything that belongs to it. */
  forget(handler: string): void {
    this.handlers.delete(handler);
    for (const [name, id] of this.names) if (id === handler) this.names.delete(name);
    for (const [key, row] of this.blocked) if (row.handler === handler) this.blocked.delete(key);
    for (let slot = 0; slot < this.slotCount; slot++) {
      this.cursors.delete(`${handler} ${slot}`);
      this.#leases.delete(`${handler} ${slot}`);
    }
  }

  /** The contents that a replica has received. Shares immutable objects. */
  snapshot(): MemoryDeliverySnapshot {
    return {
      log: this.log.slice(),
      processes: new Map(this.processes),
      handlers: new Map(this.handlers),
      names: new Map(this.names),
      cursors: new Map(this.cursors),
      blocked: copyOf(this.blocked),
      leases: new Map(this.#leases),
      timeline: this.#timeline,
    };
  }

  /**
   * Continues from a replica's snapshot: everything later is lost, and earlier tokens are invalid. The time after which a process
   * counts as vanished starts again with the first renewal.
   */
  failOver(replica: MemoryDeliverySnapshot): void {
    this.#timeline = Math.max(this.#timeline, replica.timeline) + 1;
    this.log.splice(0, Infinity, ...replica.log);
    replace(this.processes, replica.processes);
    replace(this.handlers, replica.handlers);
    replace(this.names, replica.names);
    replace(this.cursors, replica.cursors);
    replace(this.blocked, copyOf(replica.blocked));
    this.blockedEver.clear();
    for (const { handler, event } of replica.blocked.values())
      if (event !== undefined) this.blockedEver.add(`${handler} ${event.id}`);
    replace(this.#leases, replica.leases);
  }

  /** Deletes all events. Handlers stay registered, and start with the next event. */
  clear(): void {
    this.log.length = 0;
    this.blocked.clear();
    this.moveCursors(0);
  }
}

/** Whether an event waits for a handler in a blocked model, at its head or behind it. */
export function waits(
  { blocked }: Pick<MemoryDeliverySnapshot, 'blocked'>,
  handler: string,
  event: Pick<DeliverableEvent, 'id' | 'modelName' | 'modelId'> & ModelPosition,
): boolean {
  const row = blocked.get(modelKey(handler, event));
  return row !== undefined && comparePositions(row.position, event) <= 0 && !row.doneIds.includes(event.id);
}

/** Identifies a model of a handler. */
export function modelKey(
  handler: string,
  { modelName, modelId }: Pick<BlockedModel, 'modelName' | 'modelId'>,
): string {
  return JSON.stringify([handler, modelName, modelId]);
}

function copyOf(blocked: ReadonlyMap<string, MemoryBlocked>): Map<string, MemoryBlocked> {
  return new Map(
    [...blocked].map(([key, row]) => {
      const { openAttempts, loneAttempts } = row;
      return [
        key,
        { ...row, openAttempts: new Set(openAttempts), loneAttempts: new Set(loneAttempts) },
      ] as const;
    }),
  );
}

function replace<K, V>(target: Map<K, V>, source: ReadonlyMap<K, V>): void {
  target.clear();
  for (const [key, value] of source) target.set(key, value);
}

/**
 * Copies an event. An event larger than `bytesMax` is copied without its payload and params, and without its headers if they are
 * larger than `bytesMax` by themselves.
 *
 * Several handlers may share the copy: each read of a value returns a copy of that value, as if it came from a row of PostgreSQL.
 */
export function boundedCopy(event: DeliverableEvent, bytesMax: number): DeliverableEvent {
  const bytes = bytesOf(event);
  const { payload, actionParams, headers, ...rest } = event;
  const copy = { ...structuredClone(rest), bytes };
  if (bytes > bytesMax) {
    const kept = bytesOf(headers) <= bytesMax ? structuredClone(headers) : {};
    return { ...copy, omitted: true, payload: undefined, actionParams: undefined, headers: kept };
  }
  return {
    ...copy,
    get payload() {
      return structuredClone(payload);
    },
    get actionParams() {
      return structuredClone(actionParams);
    },
    get headers() {
      return structuredClone(headers);
    },
  };
}

function bytesOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
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
