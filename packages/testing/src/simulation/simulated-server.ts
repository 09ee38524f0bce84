import type { Clock, ShardIdentifier } from '@framework/core';
import type { ShardingConfig } from '@framework/core/adapter';

import { MemoryServer, type MemorySnapshot, type MemoryTables, waits } from '../memory/index.js';
import type { DeliveredLog } from '../record/check-deliveries.js';
import type { History } from './history.js';
import type { PassedServer } from './network-faults.js';
import type { Scheduler, StepOwner } from './scheduler.js';

/** Few slots, so that each holds several models. */
const slotCount = 4;
const farFuture = new Date(8.64e15);

interface Outage {
  readonly tables: MemoryTables;
  readonly from: Date;
  to: Date;
}

interface LateWrite {
  readonly tables: MemoryTables;
  readonly arrive: () => void;
}

/** The databases of a run. They go down, fail over, and receive writes late. */
export class SimulatedServer implements PassedServer {
  readonly sharding: ShardingConfig;
  readonly memory: MemoryServer;
  readonly #scheduler: Scheduler;
  readonly #owner: StepOwner;
  readonly #history: History;
  readonly #onFailedOver: (tables: MemoryTables, replica: MemorySnapshot) => void;
  readonly #clock: Clock;
  readonly #down = new Set<MemoryTables>();
  readonly #outages: Outage[] = [];
  readonly #late = new Set<LateWrite>();

  /**
   * @param options.owner the owner of the steps in which late writes arrive and databases fail over
   * @param options.onFailedOver called at each failover before anybody else uses the database
   */
  constructor(options: {
    readonly sharding: ShardingConfig;
    readonly clock: Clock;
    readonly scheduler: Scheduler;
    readonly owner: StepOwner;
    readonly history: History;
    readonly onFailedOver: (tables: MemoryTables, replica: MemorySnapshot) => void;
  }) {
    const { sharding, clock } = options;
    this.sharding = sharding;
    this.#clock = clock;
    this.memory = new MemoryServer(sharding, { clock, slotCount });
    this.#scheduler = options.scheduler;
    this.#owner = options.owner;
    this.#history = options.history;
    this.#onFailedOver = options.onFailedOver;
  }

  get databases(): readonly MemoryTables[] {
    return this.memory.databases;
  }

  isDown(shard: ShardIdentifier): boolean {
    return this.#down.size > 0 && this.#down.has(this.memory.tables(shard));
  }

  timelineOf(shard: ShardIdentifier): number {
    return this.memory.tables(shard).delivery.timeline;
  }

  late(shard: ShardIdentifier, afterMs: number): Promise<void> {
    return new Promise((resolve) => {
      const write: LateWrite = {
        tables: this.memory.tables(shard),
        arrive: () => {
          if (this.#late.delete(write)) resolve();
        },
      };
      this.#late.add(write);
      this.#scheduler.after(this.#owner, afterMs, 'a late write arrives', write.arrive);
    });
  }

  /** Makes a database refuse everything until the returned function is called. */
  takeDown(tables: MemoryTables): () => void {
    const outage: Outage = { tables, from: this.#clock.now(), to: farFuture };
    this.#outages.push(outage);
    this.#down.add(tables);
    return () => {
      outage.to = this.#clock.now();
      this.#down.delete(tables);
    };
  }

  /** Whether the database of a shard was down at any time between two moments. */
  wasDown(shard: ShardIdentifier, since: Date, until: Date): boolean {
    const own = this.memory.tables(shard);
    return this.#outages.some(({ tables, from, to }) => tables === own && from <= until && to >= since);
  }

  /**
   * Continues from a snapshot, and loses everything later. Without a snapshot nothing is lost, as in a crash and a restart.
   */
  failOver(tables: MemoryTables, snapshot?: MemorySnapshot): void {
    // Late writes must arrive now: after the failover their connection is gone.
    for (const { tables: own, arrive } of this.#late) if (own === tables) arrive();
    this.#scheduler.after(this.#owner, 0, 'a database fails over', () => {
      const before = [...tables.commits];
      const replica = snapshot ?? tables.snapshot();
      tables.failOver(replica);
      this.#onFailedOver(tables, replica);
      const kept = new Set(tables.commits.map(({ position }) => position));
      const lost = before.filter(({ position }) => !kept.has(position));
      this.#history.lost.push(...lost);
      this.#history.count(lost.length > 0 ? 'failover with losses' : 'failover');
    });
  }
}

/** The log of a database, and which of its events wait in blocked models or have failed. */
export function deliveredLog({ delivery }: MemoryTables): DeliveredLog {
  const idOf = (handler: string): string => delivery.names.get(handler) ?? handler;
  return {
    events: delivery.log,
    isBlocked: (handler, event) => waits(delivery, idOf(handler), event),
    wasBlocked: (handler, { id }) => delivery.blockedEver.has(`${idOf(handler)} ${id}`),
  };
}

/** Describes the dead letters of a database. */
export function deadLettersIn({ delivery }: MemoryTables): readonly string[] {
  return [...delivery.blocked.values()]
    .filter(({ dead }) => dead)
    .map(({ handler, event, error }) => `${handler} gave up on ${event?.type}: ${error}`);
}
