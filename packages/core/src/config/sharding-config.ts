import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { Secret } from './database-url.js';

/** The name of the configuration that every member must have: where its rows are written and read. */
export const primaryConfig = 'primaryConfig';

/** Which shards there are, and where each one's databases stand. */
export interface ShardingConfig {
  /** Where actions are recorded that stage nothing, read nothing and name no shard. */
  readonly defaultShard: ShardIdentifier;
  readonly members: readonly MemberConfig[];
}

/** One shard of the configuration. */
export interface MemberConfig {
  readonly shard: ShardIdentifier;
  readonly groupName: string;
  readonly name: string;
  /** By the name of the configuration in camelCase: `primaryConfig`, and whatever else the member names. */
  readonly databases: ReadonlyMap<string, DatabaseConfig>;
}

/** One database of a member. */
export interface DatabaseConfig {
  /** Where it stands in the configuration, for messages. */
  readonly path: string;
  /** The name of the configuration in camelCase. */
  readonly name: string;
  /** A URL without credentials, such as `postgresql://db-1:5432/global`. */
  readonly address: string;
  readonly username: string | undefined;
  readonly password: Secret | undefined;
  readonly driverClassName: string | undefined;
  /** Connections at most, per process. Default 10. */
  readonly poolMax: number;
  /** How long a caller waits for a connection. Default 5,000. */
  readonly acquisitionTimeoutMs: number;
  /** How many callers may wait for a connection. Default 1,000. */
  readonly acquisitionQueueMax: number;
  /** How long one statement may run. Default 10,000. */
  readonly statementTimeoutMs: number;
  /** How many connections are kept open without use. Default 0. */
  readonly idleMin: number;
  /** After how long without use further ones are closed; 0 is never. Default 10,000. */
  readonly idleTimeoutMs: number;
  /** After how long a connection is replaced, as soon as nobody uses it; 0 is never. Default 1,800,000. */
  readonly lifetimeMaxMs: number;
  /** After how long a connection that was not given back is warned of; 0 is never. Default 0. */
  readonly leakThresholdMs: number;
}
