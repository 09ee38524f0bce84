import type { DatabaseConfig } from '../config/sharding-config.js';
import type { DatabaseNotReadyError } from '../errors/database-not-ready-error.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { DeliveryStore } from './delivery-store.js';
import type { TransactionManager } from './transaction-manager.js';

/** Port: opens databases of one kind. */
export interface DatabaseDriver {
  /**
   * Opens a database without waiting for it: one that is down delays {@link Database.ready}, and nothing else.
   *
   * @param shards those that the configuration puts there; a driver whose databases remember which shards they hold refuses
   * a database of others
   * @throws ConfigurationError `invalid-configuration` when the configuration is not for this kind of database
   */
  open(config: DatabaseConfig, shards: readonly ShardIdentifier[]): Database;
  /**
   * Reads an address of this kind of database. Default: each spelling is another database, and is its place as it is written.
   */
  parseAddress?(address: string): DatabaseAddress;
}

/** What a driver reads from the address of a database. */
export interface DatabaseAddress {
  /** Equal for the spellings of one database, which then share its connections. */
  readonly key: string;
  /** Where the database is, for messages, such as `db-2:5432/mexico`. */
  readonly place: string;
}

/** Port: one database, which may hold several shards. */
export interface Database {
  /** @param name of the shard in the configuration, for messages */
  transactionManager(shard: ShardIdentifier, name: string): TransactionManager;
  /** What delivery needs of the database; absent where its adapter only stores. */
  readonly delivery?: DeliveryStore | undefined;
  /**
   * Resolves when the database can serve: reached, and migrated where that is the driver's task.
   *
   * Waits for as long as it takes, also for what only a person can mend; rejects when the database is closed before.
   *
   * @param onNotReady called with why it cannot serve now: at once when that is known, and whenever it changes
   */
  ready(onNotReady?: (reason: DatabaseNotReadyError) => void): Promise<void>;
  /** What tells the database from all others, by whatever address it is reached; `undefined` until that is known. */
  readonly identity?: string | undefined;
  /** Resolves when the database answers now, within a deadline; rejects with what is wrong, best a DatabaseNotReadyError. */
  ping(): Promise<void>;
  /** Finishes what runs, then closes every connection. */
  close(): Promise<void>;
}
