import type { DatabaseConfig } from '../config/sharding-config.js';
import type { DatabaseNotReadyError } from '../errors/database-not-ready-error.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { DeliveryStore } from './delivery-store.js';
import type { TransactionManager } from './transaction-manager.js';

/** Port: opens databases of one kind. */
export interface DatabaseDriver {
  /**
   * Opens a database without waiting for it: if it is down, that delays only {@link Database.ready}.
   *
   * @param shards those that the configuration assigns to it; a driver whose databases remember their shards refuses a database
   * that holds others
   * @throws ConfigurationError `invalid-configuration` when the configuration is not for this kind of database
   */
  open(config: DatabaseConfig, shards: readonly ShardIdentifier[]): Database;
  /**
   * Parses an address of this kind of database. Default: each spelling is a different database, and is shown as written.
   */
  parseAddress?(address: string): DatabaseAddress;
}

/** What a driver reads from the address of a database. */
export interface DatabaseAddress {
  /** Equal for all spellings of the address of one database; members with equal keys share its connections. */
  readonly key: string;
  /** Where the database is, for messages, such as `db-2:5432/mexico`. */
  readonly place: string;
}

/** How a pool of connections is used now. */
export interface PoolUse {
  /** Different for each pool of a process, such as `db-2:5432/mexico requests`. */
  readonly name: string;
  /** The maximum number of open connections. */
  readonly max: number;
  /** How many connections are lent, or are being opened for somebody. */
  readonly usedCount: number;
  readonly idleCount: number;
  /** How many callers wait for a connection, or for others that share one with them. */
  readonly pendingCount: number;
}

/** Port: one database, which may hold several shards. */
export interface Database {
  /**
   * The transactions of one of its shards, even before the database is ready.
   *
   * @param name the name of the shard in the configuration, for messages
   */
  transactionManager(shard: ShardIdentifier, name: string): TransactionManager;
  /** The part of the database that delivery uses; absent if its adapter only stores. */
  readonly delivery?: DeliveryStore | undefined;
  /** How its pools of connections are used now; absent if it has none. */
  pools?(): readonly PoolUse[];
  /**
   * Resolves when the database can be used: reachable, and migrated if that is the driver's task.
   *
   * Waits as long as necessary, even for something that only a person can fix; rejects once the database is closed.
   *
   * @param onNotReady called with the reason why it cannot be used: at once if the reason is known, and whenever it changes
   */
  ready(onNotReady?: (reason: DatabaseNotReadyError) => void): Promise<void>;
  /** Identifies the database, whatever address is used to reach it; `undefined` until it is known. */
  readonly identity?: string | undefined;
  /**
   * Resolves when the database answers within a deadline; otherwise rejects with the reason, preferably a DatabaseNotReadyError.
   */
  ping(): Promise<void>;
  /** Finishes running work, then closes every connection. */
  close(): Promise<void>;
}
