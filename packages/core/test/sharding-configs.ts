import type { DatabaseConfig, MemberConfig } from '../src/adapter.js';
import { Secret } from '../src/config/database-url.js';
import type { ShardIdentifier } from '../src/index.js';

/** A member with one database of its own. */
export function memberConfig(
  shard: ShardIdentifier,
  databases: readonly DatabaseConfig[] = [
    databaseConfig({ address: `postgresql://db/${shard.group}-${shard.member}` }),
  ],
): MemberConfig {
  return {
    shard,
    groupName: `group-${shard.group}`,
    name: `member-${shard.group}-${shard.member}`,
    databases: new Map(databases.map((database) => [database.name, database])),
  };
}

/** A database with the default settings. */
export function databaseConfig(settings: Partial<DatabaseConfig> = {}): DatabaseConfig {
  return {
    path: 'framework.sharding.groups[0].members[0].configs.primary-config',
    name: 'primaryConfig',
    address: 'postgresql://db/global',
    username: 'wallet',
    password: new Secret('s3cret-1'),
    driverClassName: undefined,
    poolMax: 10,
    acquisitionTimeoutMs: 5_000,
    acquisitionQueueMax: 1_000,
    statementTimeoutMs: 10_000,
    idleMin: 0,
    idleTimeoutMs: 10_000,
    lifetimeMaxMs: 0,
    leakThresholdMs: 0,
    ...settings,
  };
}
