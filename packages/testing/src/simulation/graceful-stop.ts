import type { Clock, DatabaseRegistry, ShardIdentifier } from '@framework/core';
import type { DatabaseDelivery, SlotLeases } from '@framework/core/adapter';
import type { Delivery } from '@framework/events';

import type { History } from './history.js';
import { faultMaxMs } from './passage-faults.js';
import type { StepOwner } from './scheduler.js';
import type { SimulatedServer } from './simulated-server.js';

/** How long a process that stops waits for the calls that it has taken. */
const callsTimeoutMs = 5_000;
/** How long closing databases takes: what is on its way there arrives. */
const closeMs = 5;

/**
 * Stops a process as a service is stopped: it takes no further call, delivery stops beside the calls that run, and the databases are
 * closed. Notes when delivery takes longer than it may, or keeps leases in a database that has answered all the time.
 */
export class GracefulStop {
  /** What is stopped, where the process has handlers. */
  delivery: Delivery | undefined;
  /** The databases for the process's delivery, which are told here who it is. */
  readonly watched: Pick<DatabaseRegistry, 'deliveries'>;
  /** Set when it is asked for. */
  hasBegun = false;
  readonly #owner: StepOwner;
  readonly #clock: Clock;
  readonly #server: SimulatedServer;
  readonly #history: History;
  readonly #databases: DatabaseRegistry;
  readonly #shards: readonly ShardIdentifier[];
  readonly #stopTimeoutMs: number;
  readonly #calls = new Set<Promise<unknown>>();
  readonly #disturbedMs = new Map<ShardIdentifier, number>();
  #handlerCallCount = 0;
  #deliveryId: string | undefined;

  constructor(options: {
    readonly owner: StepOwner;
    readonly clock: Clock;
    readonly server: SimulatedServer;
    readonly history: History;
    readonly databases: DatabaseRegistry;
    /** Those that the process knows. */
    readonly shards: readonly ShardIdentifier[];
    /** How long delivery waits for handlers, and once more for its databases. */
    readonly stopTimeoutMs: number;
  }) {
    const { databases } = options;
    this.#owner = options.owner;
    this.#clock = options.clock;
    this.#server = options.server;
    this.#history = options.history;
    this.#databases = databases;
    this.#shards = options.shards;
    this.#stopTimeoutMs = options.stopTimeoutMs;
    this.watched = { deliveries: () => databases.deliveries().map((each) => this.#watch(each)) };
  }

  /** A call of a client, which a stop waits for. */
  awaiting<T>(call: Promise<T>): Promise<T> {
    this.#calls.add(call);
    const remove = (): void => void this.#calls.delete(call);
    call.then(remove, remove);
    return call;
  }

  /** Counts the calls of handlers that run. */
  handlerCalls(change: 1 | -1): void {
    this.#handlerCallCount += change;
  }

  /** Says that something is wrong on a way to the database of a shard. */
  disturb(shard: ShardIdentifier): void {
    this.#disturbedMs.set(shard, this.#clock.elapsedMs());
  }

  /** Resolves when the process may end. */
  async run(): Promise<void> {
    this.#history.count('stop');
    if (this.#calls.size > 0) this.#history.count('stop amid calls');
    if (this.#handlerCallCount > 0) this.#history.count('stop amid handlers');
    const startedMs = this.#clock.elapsedMs();
    const { stoodMs } = this.#owner;
    const timelines = this.#shards.map((shard) => this.#server.timelineOf(shard));
    const calls = Promise.allSettled(this.#calls);
    await Promise.all([
      this.#stopDelivery(startedMs, stoodMs),
      Promise.race([calls, this.#clock.sleep(callsTimeoutMs)]),
    ]);
    await this.#clock.sleep(closeMs);
    await this.#databases.close();
    if (this.#owner.stoodMs > stoodMs) return;
    for (const [index, shard] of this.#shards.entries()) {
      const disturbedMs = this.#disturbedMs.get(shard) ?? -Infinity;
      const isCalm =
        disturbedMs < startedMs - faultMaxMs && this.#server.timelineOf(shard) === timelines[index];
      if (isCalm) this.#checkLeases(shard);
    }
  }

  async #stopDelivery(startedMs: number, stoodMs: number): Promise<void> {
    await this.delivery?.stop();
    const tookMs = this.#clock.elapsedMs() - startedMs - (this.#owner.stoodMs - stoodMs);
    const maxMs = 2 * this.#stopTimeoutMs;
    if (tookMs > maxMs)
      this.#violated(`took ${Math.round(tookMs)} ms to stop its delivery, more than ${maxMs} ms`);
  }

  #checkLeases(shard: ShardIdentifier): void {
    if (this.#deliveryId === undefined) return;
    this.#history.count('stop with leases given back');
    const { processes, leases } = this.#server.memory.tables(shard).delivery;
    const isThere = processes.has(this.#deliveryId);
    if (isThere || leases.some(({ processId }) => processId === this.#deliveryId))
      this.#violated(`has stopped and not given back its leases on ${shard.toString()}, which answered it`);
  }

  #violated(what: string): void {
    this.#history.violations.push(`process ${this.#owner.name} ${what}`);
  }

  #watch(database: DatabaseDelivery): DatabaseDelivery {
    const { store } = database;
    const leases: SlotLeases = {
      renew: (processId, ...rest) => {
        this.#deliveryId = processId;
        return store.leases.renew(processId, ...rest);
      },
      release: (processId) => store.leases.release(processId),
      list: () => store.leases.list(),
    };
    return { ...database, store: { ...store, leases } };
  }
}
