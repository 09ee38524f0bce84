import { type Clock, type ShardIdentifier, systemClock } from '@framework/core';
import {
  type DatabaseConfig,
  type DatabaseDriver,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from '@framework/core/adapter';

import { MemoryFaults } from './memory-faults.js';
import { MemoryDatabase, type MemoryServer, defaultSlotCount } from './memory-server.js';
import { MemoryTables } from './memory-tables.js';

/** What may differ from the defaults. */
export interface MemoryOptions {
  /** The databases' time; a server has its own. Default: the computer's clock. */
  readonly clock?: Clock;
  /** Into how many slots each log is cut by the models' ids; a server has its own. Default 16. */
  readonly slotCount?: number;
  /** Whose databases are opened. Default: databases of their own, which begin empty and are lost with the registry. */
  readonly server?: MemoryServer;
  /** How the way to the databases misbehaves. Default: not at all. */
  readonly faults?: MemoryFaults;
}

/**
 * Opens databases in memory, with the guarantees of a real one: for tests without any server.
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
 * The configuration of databases in memory.
 *
 * @param databases for each one its shard, or several shards that share it; the first shard is the default
 */
export function memorySharding(
  ...databases: readonly [ShardsOfDatabase, ...ShardsOfDatabase[]]
): ShardingConfig {
  const [first] = databases;
  const members = databases.flatMap((shards, index) => shardsOf(shards).map((shard) => member(shard, index)));
  return { defaultShard: Array.isArray(first) ? first[0] : first, members };
}

type ShardsOfDatabase = ShardIdentifier | readonly [ShardIdentifier, ...ShardIdentifier[]];

function shardsOf(shards: ShardsOfDatabase): readonly ShardIdentifier[] {
  return 'group' in shards ? [shards] : shards;
}

function member(shard: ShardIdentifier, database: number): MemberConfig {
  return {
    shard,
    groupName: `group-${shard.group}`,
    name: `member-${shard.group}-${shard.member}`,
    databases: new Map([[primaryConfig, databaseConfig(database)]]),
  };
}

/** Only the address counts: members with the same one share a database. */
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
