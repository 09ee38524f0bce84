import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { Secret } from './database-url.js';

/** The configuration that every member must have: its database is where the member's rows are written and read. */
export const primaryConfig = 'primaryConfig';

/** All shards and their databases. */
export interface ShardingConfig {
  /** The shard that records an action which stages nothing, reads nothing and names no shard. */
  readonly defaultShard: ShardIdentifier;
  readonly members: readonly MemberConfig[];
}

/** One shard of the configuration. */
export interface MemberConfig {
  readonly shard: ShardIdentifier;
  readonly groupName: string;
  readonly name: string;
  /** Its databases by configuration name in camelCase: `primaryConfig` and any others that the member has. */
  readonly databases: ReadonlyMap<string, DatabaseConfig>;
}

/** One database of a member. */
export interface DatabaseConfig {
  /** Its path in the configuration, for messages. */
  readonly path: string;
  /** The name of the configuration in camelCase. */
  readonly name: string;
  /** A URL without credentials, such as `postgresql://db-1:5432/global`. */
  readonly address: string;
  readonly username: string | undefined;
  readonly password: Secret | undefined;
  /** How its connections are encrypted; `undefined` leaves that to the URL. */
  readonly ssl?:
    | {
        /**
         * `verify-full` verifies the server's certificate and name, `no-verify` encrypts without knowing for whom, and `disable` does
         * not encrypt. Default `verify-full`.
         */
        readonly mode: 'verify-full' | 'no-verify' | 'disable';
        /** The file of the authorities that are trusted, in PEM. Default: those that Node trusts. */
        readonly caFile?: string | undefined;
        /** The file of the certificate that is shown to the server, in PEM. Default: none. */
        readonly certFile?: string | undefined;
        /** The file of its private key, in PEM. */
        readonly keyFile?: string | undefined;
      }
    | undefined;
  readonly driverClassName: string | undefined;
  /** The maximum number of connections per process. Default 10. */
  readonly poolMax: number;
  /** How long a caller waits for a connection. Default 5,000. */
  readonly acquisitionTimeoutMs: number;
  /** How many callers may wait for a connection. Default 1,000. */
  readonly acquisitionQueueMax: number;
  /** How long one statement may run. Default 10,000. */
  readonly statementTimeoutMs: number;
  /** How many unused connections are kept open. Default 0. */
  readonly idleMin: number;
  /** How long a connection beyond `idleMin` may be unused before it is closed; 0 means forever. Default 600,000. */
  readonly idleTimeoutMs: number;
  /** The age at which an unused connection is replaced; 0 means never. Default 1,800,000. */
  readonly lifetimeMaxMs: number;
  /** How long a connection may be borrowed before there is a warning; 0 means that there is none. Default 0. */
  readonly leakThresholdMs: number;
}
