import {
  type Clock,
  ConfigurationError,
  InvariantViolationError,
  type ShardIdentifier,
  UnknownShardError,
  systemClock,
} from '@framework/core';
import {
  type Database,
  type DatabaseConfig,
  type ShardingConfig,
  primaryConfig,
} from '@framework/core/adapter';

import { MemoryAccess } from './delivery/memory-access.js';
import { MemoryDeliveryStore } from './delivery/memory-delivery-store.js';
import type { MemoryFaults } from './memory-faults.js';
import { MemoryTables } from './memory-tables.js';
import { MemoryTransactionManager } from './memory-transaction-manager.js';

/** As many as PostgreSQL's log has. */
export const defaultSlotCount = 16;

/**
 * Databases in memory that outlive the processes which open them: each process has a registry, faults and delivery of its own.
 *
 * ```ts
 * const sharding = memorySharding(firstShard, otherDatabaseShard);
 * const server = new MemoryServer(sharding, { clock });
 * const [one, other] = [1, 2].map(() => openDatabases(sharding, memory({ server, faults: new MemoryFaults() })));
 * const replica = server.tables(firstShard).snapshot();
 * server.tables(firstShard).failOver(replica); // what was committed in between is lost
 * ```
 */
export class MemoryServer {
  readonly #sharding: ShardingConfig;
  readonly #byAddress = new Map<string, MemoryTables>();

  /**
   * @param sharding whose databases it has, as memorySharding makes it; a process that opens some of its members knows only those
   * @param options.clock the databases' time. Default: the computer's clock
   * @param options.slotCount into how many slots each log is cut by the models' ids. Default 16
   */
  constructor(
    sharding: ShardingConfig,
    {
      clock = systemClock,
      slotCount = defaultSlotCount,
    }: { readonly clock?: Clock; readonly slotCount?: number } = {},
  ) {
    this.#sharding = sharding;
    let position = 0;
    for (const { address } of sharding.members.flatMap(({ databases }) => [...databases.values()]))
      if (!this.#byAddress.has(address))
        this.#byAddress.set(address, new MemoryTables(clock, slotCount, () => position++));
  }

  /** What each database holds, in the order of the configuration. */
  get databases(): readonly MemoryTables[] {
    return [...this.#byAddress.values()];
  }

  /**
   * What the database of a shard holds.
   *
   * @throws UnknownShardError `unknown-shard` when there is none
   */
  tables(shard: ShardIdentifier): MemoryTables {
    const member = this.#sharding.members.find((each) => each.shard === shard);
    const config = member?.databases.get(primaryConfig);
    if (config === undefined) throw new UnknownShardError(shard);
    return this.tablesAt(config);
  }

  /**
   * What a configured database holds.
   *
   * @throws ConfigurationError `invalid-configuration` when the server has none of that address
   */
  tablesAt({ address, path }: DatabaseConfig): MemoryTables {
    const tables = this.#byAddress.get(address);
    if (tables !== undefined) return tables;
    throw new ConfigurationError([{ path, message: `the server has no database ${address}` }]);
  }
}

/** One process's way to a database in memory, which serves from the beginning. */
export class MemoryDatabase implements Database {
  readonly delivery: MemoryDeliveryStore;
  readonly #tables: MemoryTables;
  readonly #faults: MemoryFaults;
  readonly #shard: ShardIdentifier;

  /** @param shards those that the process has there, at least one */
  constructor(tables: MemoryTables, [shard]: readonly ShardIdentifier[], faults: MemoryFaults) {
    if (shard === undefined) throw new InvariantViolationError('A database holds no shard');
    this.#tables = tables;
    this.#faults = faults;
    this.#shard = shard;
    this.delivery = new MemoryDeliveryStore(new MemoryAccess(tables.delivery, faults, shard));
  }

  transactionManager(shard: ShardIdentifier): MemoryTransactionManager {
    return new MemoryTransactionManager(shard, this.#tables, this.#faults);
  }

  ready(): Promise<void> {
    return this.#faults.ask({ operation: 'ready', shard: this.#shard }, () => undefined);
  }

  ping(): Promise<void> {
    return this.#faults.ask({ operation: 'ping', shard: this.#shard }, () => undefined);
  }

  async close(): Promise<void> {}
}
