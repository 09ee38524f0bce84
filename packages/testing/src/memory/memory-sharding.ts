import {
  type DatabaseConfig,
  type MemberConfig,
  type ShardIdentifier,
  type ShardingConfig,
  primaryConfig,
} from '@framework/core';

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
