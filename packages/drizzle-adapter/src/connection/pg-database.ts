import { setTimeout as delay } from 'node:timers/promises';
import {
  type Database,
  type DatabaseConfig,
  type DeliveryStore,
  InvariantViolation,
  type ShardIdentifier,
  ShardUnavailableException,
  primaryConfig,
} from '@framework/core';
import pg from 'pg';
import { EpochGuard } from '../delivery/epoch-guard.js';
import { PgDeliveryStore } from '../delivery/pg-delivery-store.js';
import { isWorthWaiting } from '../migration/is-worth-waiting.js';
import { type MigratedDatabase, migrateDatabase } from '../migration/migrate-database.js';
import { replaceDeliveryIndex } from '../migration/replace-delivery-index.js';
import { ChangeSetWriter } from '../write/change-set-writer.js';
import { GroupWriter } from '../write/group-writer.js';
import { ConnectionPool, connectionSettings } from './connection-pool.js';
import { PgTransactionManager } from './pg-transaction-manager.js';
import { type PostgresOptions, type PostgresWarning, printWarning } from './postgres-options.js';

const retryDelayMs = 500;
const pingTimeoutMs = 2_000;
const applicationNameDefault = 'framework';
const deliveryPoolMaxDefault = 2;

/** What delivery has of a database for itself. */
interface PgDelivery {
  readonly pool: ConnectionPool;
  readonly store: PgDeliveryStore;
}

/** One PostgreSQL database: its connections, its migrations, and the transactions of the shards that it holds. */
export class PgDatabase implements Database {
  /** The connections of the requests. */
  readonly pool: ConnectionPool;
  readonly writer: ChangeSetWriter = new ChangeSetWriter();
  readonly groups: GroupWriter = new GroupWriter();
  readonly #config: DatabaseConfig;
  readonly #options: PostgresOptions;
  readonly #epochs: EpochGuard;
  readonly #warn: (warning: PostgresWarning) => void;
  readonly #closing = new AbortController();
  readonly #ready: Promise<void>;
  #isReady = false;
  #indexing: Promise<void> | undefined;
  #identity: string | undefined;
  #firstShard: ShardIdentifier | undefined;
  #delivery: PgDelivery | undefined;
  #obstacle: unknown;

  constructor(config: DatabaseConfig, options: PostgresOptions) {
    this.#config = config;
    this.#options = options;
    this.#warn = options.onWarning ?? printWarning;
    this.#epochs = new EpochGuard(config.path, this.#warn);
    const { applicationName = applicationNameDefault } = options;
    this.pool = new ConnectionPool(config, applicationName, this.#epochs, this.#warn);
    this.#ready = this.#becomeReady();
    // Whoever waits for ready() is told; nobody has to.
    this.#ready.catch(() => undefined);
  }

  /** How long one statement may run, in milliseconds. */
  get statementTimeoutMs(): number {
    return this.#config.statementTimeoutMs;
  }

  transactionManager(shard: ShardIdentifier): PgTransactionManager {
    this.#firstShard ??= shard;
    return new PgTransactionManager(shard, this);
  }

  get delivery(): DeliveryStore {
    this.#delivery ??= this.#openDelivery();
    return this.#delivery.store;
  }

  ready(): Promise<void> {
    return this.#ready;
  }

  get identity(): string | undefined {
    return this.#identity;
  }

  /** @throws ShardUnavailableException `shard-unavailable` until the migrations of the database are applied */
  assertReady(shard: ShardIdentifier): void {
    if (!this.#isReady) throw new ShardUnavailableException(shard, 'its migrations are not applied yet');
  }

  async ping(): Promise<void> {
    if (!this.#isReady) throw new Error('its migrations are not applied yet', { cause: this.#obstacle });
    const client = new pg.Client({
      ...connectionSettings(this.#config),
      connectionTimeoutMillis: pingTimeoutMs,
      query_timeout: pingTimeoutMs,
    });
    client.on('error', () => undefined);
    try {
      await client.connect();
      await client.query('select 1');
    } finally {
      await client.end();
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#ready.catch(() => undefined);
    await this.#indexing;
    await Promise.all([this.pool.close(), this.#delivery?.pool.close()]);
  }

  /** With connections of its own, so that requests and delivery do not wait for each other. */
  #openDelivery(): PgDelivery {
    const shard = this.#firstShard;
    if (shard === undefined) throw new InvariantViolation('A database without shards delivers nothing');
    const { applicationName = applicationNameDefault, deliveryPoolMax: poolMax = deliveryPoolMaxDefault } =
      this.#options;
    const config = { ...this.#config, poolMax, idleMin: 0 };
    const pool = new ConnectionPool(config, `${applicationName} delivery`, this.#epochs, this.#warn);
    const hints = { ...connectionSettings(this.#config), application_name: `${applicationName} hints` };
    return { pool, store: new PgDeliveryStore(new PgTransactionManager(shard, this, pool), hints) };
  }

  async #becomeReady(): Promise<void> {
    const migrates = (this.#options.migrateOnOpen ?? true) && this.#config.name === primaryConfig;
    const migrated = migrates ? await this.#migrate() : undefined;
    if (this.#closing.signal.aborted)
      throw new Error('The database was closed before it could serve', { cause: this.#obstacle });
    this.#identity = migrated?.identity;
    this.#isReady = true;
    this.pool.keepWarm();
    if (migrated?.hasEarlierIndex === true) this.#indexing = this.#replaceIndex();
  }

  /** Beside everything else, because it may take as long as the log is large; the next process to open it tries again. */
  async #replaceIndex(): Promise<void> {
    try {
      await replaceDeliveryIndex(this.#config, this.#closing.signal);
    } catch (error) {
      const message = `the index of the log was not replaced: ${String(error)}`;
      this.#warn({ kind: 'log-index', database: this.#config.path, message });
    }
  }

  /** Tries again for as long as the database cannot be reached, or until it is closed. */
  async #migrate(): Promise<MigratedDatabase | undefined> {
    while (!this.#closing.signal.aborted) {
      try {
        return await migrateDatabase(this.#config, this.#options.migrationsFolder, {
          epochs: this.#epochs,
          signal: this.#closing.signal,
        });
      } catch (error) {
        this.#obstacle = error;
        if (!isWorthWaiting(error)) throw error;
        await delay(retryDelayMs, undefined, { signal: this.#closing.signal }).catch(() => undefined);
      }
    }
    return undefined;
  }
}
