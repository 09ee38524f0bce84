import type { Clock, DatabaseRegistry, ShardIdentifier } from '@framework/core';
import type { DatabaseDelivery, SlotLeases } from '@framework/core/adapter';
import type { Delivery } from '@framework/events';

import type { History } from './history.js';
import { faultMaxMs } from './network-faults.js';
import type { StepOwner } from './scheduler.js';
import type { SimulatedServer } from './simulated-server.js';

/** How long a stopping process waits for calls that it has accepted. */
const callsTimeoutMs = 5_000;
/** How long it takes to close the databases; requests that are on their way still arrive. */
const closeMs = 5;

/**
 * Stops a process as a service is stopped: it accepts no more calls, stops delivery while running calls finish, and
 * closes the databases. Reports when delivery takes longer than allowed, or keeps leases in a database that has answered the
 * whole time.
 */
export class GracefulStop {
  /** The delivery to stop, if the process has handlers. */
  delivery: Delivery | undefined;
  /** The databases for the process's delivery, wrapped to find out the delivery's process id. */
  readonly watched: Pick<DatabaseRegistry, 'deliveries'>;
  /** Set when a stop is requested. */
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
    /** The shards that the process knows. */
    readonly shards: readonly ShardIdentifier[];
    /** How long delivery waits for handlers, and then again for its databases. */
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

  /** Adds a client's call, for which a stop waits. */
  awaiting<T>(call: Promise<T>): Promise<T> {
    this.#calls.add(call);
    const remove = (): void => void this.#calls.delete(call);
    call.then(remove, remove);
    return call;
  }

  /** Adds a running call of a handler, or removes one that has ended. */
  handlerCalls(change: 1 | -1): void {
    this.#handlerCallCount += change;
  }

  /** Records a fault on a connection to the database of a shard. */
  disturb(shard: ShardIdentifier): void {
    this.#disturbedMs.set(shard, this.#clock.elapsedMs());
  }

  /** Stops everything, and resolves when the process may end. */
  async run(): Promise<void> {
    this.#history.count('stop');
    if (this.#calls.size > 0) this.#history.count('stop amid calls');
    if (this.#handlerCallCount > 0) this.#history.count('stop amid handlers');
    const startedMs = this.#clock.elapsedMs();
    const { stalledMs } = this.#owner;
    const timelines = this.#shards.map((shard) => this.#server.timelineOf(shard));
    const calls = Promise.allSettled(this.#calls);
    await Promise.all([
      this.#stopDelivery(startedMs, stalledMs),
      Promise.race([calls, this.#clock.sleep(callsTimeoutMs)]),
    ]);
    await this.#clock.sleep(closeMs);
    await this.#databases.close();
    if (this.#owner.stalledMs > stalledMs) return;
    for (const [index, shard] of this.#shards.entries()) {
      const disturbedMs = this.#disturbedMs.get(shard) ?? -Infinity;
      const isCalm =
        disturbedMs < startedMs - faultMaxMs && this.#server.timelineOf(shard) === timelines[index];
      if (isCalm) this.#checkLeases(shard);
    }
  }

  async #stopDelivery(startedMs: number, stalledMs: number): Promise<void> {
    await this.delivery?.stop();
    const tookMs = this.#clock.elapsedMs() - startedMs - (this.#owner.stalledMs - stalledMs);
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
      this.#violated(
        `has stopped without giving back its leases on ${shard.toString()}, which was available`,
      );
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
      recovered: (tokens) => store.leases.recovered(tokens),
      release: (processId) => store.leases.release(processId),
      list: () => store.leases.list(),
    };
    return { ...database, store: { ...store, leases } };
  }
}
