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
  type DatabaseDriver,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from '@framework/core/adapter';

import { MemoryAccess } from './delivery/memory-access.js';
import { MemoryDeliveryStore } from './delivery/memory-delivery-store.js';
import { MemoryOperatorStore } from './delivery/memory-operator-store.js';
import { MemoryFaults } from './memory-faults.js';
import { MemoryTables } from './memory-tables.js';
import { MemoryTransactionManager } from './memory-transaction-manager.js';

/** As many as in PostgreSQL's log. */
const defaultSlotCount = 16;

/**
 * Databases in memory that outlive the processes which open them. Each process has its own registry, faults and
 * delivery.
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
   * @param sharding the configuration of its databases, from memorySharding; a process that opens only some members
   * knows only those
   * @param options.clock the time of the databases. Default: the computer's clock
   * @param options.slotCount how many slots each log has. Default 16
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

  /** The contents of each database, in the order of the configuration. */
  get databases(): readonly MemoryTables[] {
    return [...this.#byAddress.values()];
  }

  /**
   * The contents of a shard's database.
   *
   * @throws UnknownShardError `unknown-shard` when the server has no such shard
   */
  tables(shard: ShardIdentifier): MemoryTables {
    const member = this.#sharding.members.find((each) => each.shard === shard);
    const config = member?.databases.get(primaryConfig);
    if (config === undefined) throw new UnknownShardError(shard);
    return this.tablesAt(config);
  }

  /**
   * The contents of a configured database.
   *
   * @throws ConfigurationError `invalid-configuration` when the server has no database with that address
   */
  tablesAt({ address, path }: DatabaseConfig): MemoryTables {
    const tables = this.#byAddress.get(address);
    if (tables !== undefined) return tables;
    const message = `the MemoryServer has no database ${address}: add it to the configuration of the server`;
    throw new ConfigurationError([{ path, message }]);
  }
}

/** One process's connection to a database in memory, which is ready from the beginning. */
class MemoryDatabase implements Database {
  readonly delivery: MemoryDeliveryStore;
  readonly #tables: MemoryTables;
  readonly #faults: MemoryFaults;
  readonly #shard: ShardIdentifier;

  /** @param shards the shards that the process has there, at least one */
  constructor(tables: MemoryTables, [shard]: readonly ShardIdentifier[], faults: MemoryFaults) {
    if (shard === undefined)
      throw new InvariantViolationError('A database in memory was opened without a shard: pass at least one');
    this.#tables = tables;
    this.#faults = faults;
    this.#shard = shard;
    const access = new MemoryAccess(tables.delivery, faults, shard);
    this.delivery = new MemoryDeliveryStore(
      access,
      undefined,
      new MemoryOperatorStore(access, tables, shard),
    );
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

/** The options of databases in memory. */
export interface MemoryOptions {
  /** The time of the databases; not used with `server`, which has its own. Default: the computer's clock. */
  readonly clock?: Clock;
  /** How many slots each log has; not used with `server`, which has its own setting. Default 16. */
  readonly slotCount?: number;
  /** The server whose databases are opened. Default: new, empty databases that are lost with the registry. */
  readonly server?: MemoryServer;
  /** The faults on the way to the databases. Default: none. */
  readonly faults?: MemoryFaults;
}

/**
 * Opens databases in memory with the guarantees of real ones, for tests without a server.
 *
 * ```ts
 * const databases = openDatabases(memorySharding(ShardIdentifier.of(0, 0)), memory({ clock }));
 * const wallets = new MemoryRepository({ model: Wallet, databases });
 * ```
 */
export function memory({
  clock = systemClock,
  slotCount = defaultSlotCount,
  server,
  faults = new MemoryFaults(),
}: MemoryOptions = {}): DatabaseDriver {
  let position = 0;
  return {
    open: (config, shards) => {
      const tables =
        server === undefined ? new MemoryTables(clock, slotCount, () => position++) : server.tablesAt(config);
      return new MemoryDatabase(tables, shards, faults);
    },
  };
}

/**
 * Makes the configuration of databases in memory.
 *
 * @param databases for each database its shard, or several shards that share it; the first shard is the default
 */
export function memorySharding(
  ...databases: readonly [ShardsOfDatabase, ...ShardsOfDatabase[]]
): ShardingConfig {
  const [first] = databases;
  const members = databases.flatMap((shards, index) =>
    shardsOf(shards).map((shard) => memberConfig(shard, index)),
  );
  return { defaultShard: Array.isArray(first) ? first[0] : first, members };
}

/** One shard, or several that share a database. */
type ShardsOfDatabase = ShardIdentifier | readonly [ShardIdentifier, ...ShardIdentifier[]];

function shardsOf(shards: ShardsOfDatabase): readonly ShardIdentifier[] {
  return 'group' in shards ? [shards] : shards;
}

function memberConfig(shard: ShardIdentifier, database: number): MemberConfig {
  return {
    shard,
    groupName: `group-${shard.group}`,
    name: `member-${shard.group}-${shard.member}`,
    databases: new Map([[primaryConfig, databaseConfig(database)]]),
  };
}

/** Only the address matters: members with the same address share a database. */
function databaseConfig(index: number): DatabaseConfig {
  return {
    path: `memory.${index}`,
    name: primaryConfig,
    address: `memory:${index}`,
    username: undefined,
    password: undefined,
    driverClassName: undefined,
    poolMax: 1,
    acquisitionTimeoutMs: 1,
    acquisitionQueueMax: 1,
    statementTimeoutMs: 1,
    idleMin: 0,
    idleTimeoutMs: 1,
    lifetimeMaxMs: 0,
    leakThresholdMs: 0,
  };
}
