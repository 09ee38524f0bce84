import type { DeliveryStore } from '../delivery/delivery-store.js';
import type { DatabaseConfig } from '../sharding/sharding-config.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { TransactionManager } from './transaction-manager.js';

/** Port: opens databases of one kind. */
export interface DatabaseDriver {
  /**
   * Opens a database without waiting for it: one that is down delays {@link Database.ready}, and nothing else.
   *
   * @throws ConfigurationException `invalid-configuration` when the configuration is not for this kind of database
   */
  open(config: DatabaseConfig): Database;
}

/** Port: one database, which may hold several shards. */
export interface Database {
  transactionManager(shard: ShardIdentifier): TransactionManager;
  /** What delivery needs of the database. */
  readonly delivery: DeliveryStore;
  /**
   * Resolves when the database can serve: reached, and migrated where that is the driver's task.
   *
   * Waits as long as it takes; rejects when waiting cannot help.
   */
  ready(): Promise<void>;
  /** What tells the database from all others, by whatever address it is reached; `undefined` until that is known. */
  readonly identity?: string | undefined;
  /** Resolves when the database answers now, within a deadline; rejects with what is wrong. */
  ping(): Promise<void>;
  /** Finishes what runs, then closes every connection. */
  close(): Promise<void>;
}
