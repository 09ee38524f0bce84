import {
  type DatabaseNotReadyError,
  InvariantViolationError,
  type ShardIdentifier,
  ShardUnavailableError,
} from '@framework/core';
import {
  type ConfiguredDatabase,
  type Database,
  type DatabaseConfig,
  type DeliveryStore,
  type MigrateMode,
  outsideRequests,
  primaryConfig,
} from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

import { PgDeliveryStore } from './delivery/pg-delivery-store.js';
import { EpochGuard } from './delivery/pg-handler-cursors.js';
import { HeldShards } from './migration/held-shards.js';
import {
  type OpenedDatabase,
  type Opening,
  TablesInUseError,
  lookAtDatabase,
  migrateDatabase,
} from './migration/migrate-database.js';
import { replaceDeliveryIndex } from './migration/replace-delivery-index.js';
import { refuseUnmigrated } from './migration/schema-check.js';
import { ChangeSetWriter } from './write/change-set-writer.js';
import { GroupWriter } from './write/group-writer.js';
import { PlainTables } from './write/plain-tables.js';
import { ClosingClient, type ConnectionGuard } from './connection/client.js';
import { ConnectionPool, connectionSettings } from './connection/connection-pool.js';
import { LockWaits } from './connection/lock-waits.js';
import { DatabasePlace, notReadyError } from './connection/not-ready-error.js';
import { PgTransactionManager } from './pg-transaction-manager.js';
import {
  type PostgresOptions,
  type PostgresWarning,
  defaultCommands,
  printWarning,
  quiet,
} from './connection/postgres-options.js';
import { refuseWithoutWrites } from './connection/server-role.js';
import { sqlStateOf } from './connection/storage-error.js';

/** How soon a database is tried again that may be there at any moment. */
const retryMs = 500;
/** How much longer, as a factor, it takes each time while somebody has to correct something; and how long at most. */
const retryFactor = 2;
const retryMaxMs = 5_000;
/** How many times as long as a migration that failed took, until it is tried again: it may have held tables. */
const migrationRestFactor = 10;
const migrationRestMaxMs = 600_000;

/** Says when a database is tried again that could not be opened. */
export class OpeningRetries {
  #waitMs = retryMs;

  /**
   * How long to wait, in milliseconds.
   *
   * @param reason is what `error` means
   * @param tookMs is how long the try took
   */
  delayMsAfter(error: unknown, reason: DatabaseNotReadyError, tookMs: number): number {
    this.#waitMs = reason.mayPass ? retryMs : Math.min(this.#waitMs * retryFactor, retryMaxMs);
    const heldTables = reason.kind === 'migration-failed' || error instanceof TablesInUseError;
    if (!heldTables) return this.#waitMs;
    return Math.max(this.#waitMs, Math.min(tookMs * migrationRestFactor, migrationRestMaxMs));
  }
}

const pingTimeoutMs = 2_000;
/** The SQLSTATE of a server, or a role, that has no connection left. */
const noConnectionLeft = '53300';
const applicationNameDefault = 'framework';
const deliveryPoolMaxDefault = 2;

/** How many reasons why a database is not ready are remembered. */
const reasonsMax = 100;

/** What is said until the first try to open a database has ended. */
const opening = 'it is being opened';

/** What delivery has of a database for itself. */
interface PgDelivery {
  readonly pools: readonly ConnectionPool[];
  readonly store: PgDeliveryStore;
}

/** One PostgreSQL database: its connections, its migrations, and the transactions of the shards that it holds. */
export class PgDatabase implements Database {
  /** The connections of the requests. */
  readonly pool: ConnectionPool;
  readonly writer: ChangeSetWriter = new ChangeSetWriter();
  readonly plainTables: PlainTables = new PlainTables();
  readonly groups: GroupWriter = new GroupWriter(this.plainTables);
  /** Where writes wait for their turn to wait for a lock. */
  readonly lockWaits: LockWaits;
  /** Where it is, for errors. */
  readonly place: DatabasePlace;
  readonly #config: DatabaseConfig;
  readonly #options: PostgresOptions;
  readonly #held: HeldShards;
  /** What a database is asked for while it is opened: before it is migrated, and after that. */
  readonly #guards: readonly ConnectionGuard[];
  /** What every connection is asked for before it is used: its database was opened, so another one may stand there by now. */
  readonly #openedGuards: readonly ConnectionGuard[];
  readonly #warn: (warning: PostgresWarning) => void;
  readonly #closing = new AbortController();
  readonly #ready: Promise<void>;
  #isReady = false;
  #indexing: Promise<void> | undefined;
  /** The question whether it serves, which is asked once for all who ask meanwhile. */
  #asking: Promise<void> | undefined;
  #identity: string | undefined;
  #firstShard: ShardIdentifier | undefined;
  #delivery: PgDelivery | undefined;
  /** Why it is not ready, as far as it was tried. */
  #notReady: DatabaseNotReadyError | undefined;
  /** The reasons of which operators were told. */
  readonly #warnedOf = new Set<string>();
  readonly #onNotReady = new Set<(reason: DatabaseNotReadyError) => void>();

  constructor(database: ConfiguredDatabase, options: PostgresOptions) {
    const { config } = database;
    this.#config = config;
    this.#options = options;
    this.#warn = quiet(options.onWarning ?? printWarning);
    this.#held = new HeldShards(database, options.commands);
    const epochs = new EpochGuard(config.path, this.#warn);
    this.#guards = [epochs, this.#held.whenOpening];
    this.#openedGuards = [{ ensure: (client) => this.#refuseUnmigrated(client) }, epochs, this.#held];
    const { applicationName = applicationNameDefault } = options;
    this.place = new DatabasePlace(config);
    this.pool = new ConnectionPool(config, applicationName, this.place, this.#openedGuards, this.#warn);
    this.lockWaits = new LockWaits({
      poolMax: config.poolMax,
      waitMaxMs: config.acquisitionTimeoutMs,
      waitingMax: config.acquisitionQueueMax,
      place: this.place,
    });
    this.#ready = this.#becomeReady();
    // Reported to callers of ready(), of which there may be none.
    this.#ready.catch(() => undefined);
  }

  /** How long one statement may run, in milliseconds. */
  get statementTimeoutMs(): number {
    return this.#config.statementTimeoutMs;
  }

  transactionManager(shard: ShardIdentifier, name: string): PgTransactionManager {
    this.#firstShard ??= shard;
    this.place.add(shard, name);
    return new PgTransactionManager(shard, this);
  }

  get delivery(): DeliveryStore {
    this.#delivery ??= this.#openDelivery();
    return this.#delivery.store;
  }

  async ready(onNotReady: (reason: DatabaseNotReadyError) => void = () => undefined): Promise<void> {
    const listener = quiet(onNotReady);
    if (this.#notReady !== undefined) listener(this.#notReady);
    this.#onNotReady.add(listener);
    await this.#ready.finally(() => this.#onNotReady.delete(listener));
  }

  get identity(): string | undefined {
    return this.#identity;
  }

  /** @throws ShardUnavailableError `shard-unavailable`, with the reason, until the database was opened */
  assertReady(shard: ShardIdentifier): void {
    if (this.#isReady) return;
    if (this.#notReady !== undefined) throw this.place.unavailable(shard, this.#notReady);
    throw new ShardUnavailableError(shard, opening, { place: this.place.of(shard) });
  }

  async ping(): Promise<void> {
    if (!this.#isReady) throw this.#notReady ?? new Error(opening);
    // Whoever asks may be a request.
    this.#asking ??= outsideRequests(() => this.#ask()).finally(() => (this.#asking = undefined));
    await this.#asking.catch((error: unknown) => {
      throw notReadyError(error, this.#config);
    });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    const opened = this.#ready.catch(() => undefined);
    const pools = [this.pool, ...(this.#delivery?.pools ?? [])];
    await Promise.all([...pools.map((pool) => pool.close()), opened, this.#indexing]);
  }

  /**
   * With connections of its own, so that requests and delivery do not wait for each other; and with one for the leases alone, whose
   * renewals must not come too late behind everything else that delivery has to store.
   */
  #openDelivery(): PgDelivery {
    const shard = this.#firstShard;
    if (shard === undefined) throw new InvariantViolationError('A database without shards delivers nothing');
    const { applicationName = applicationNameDefault, deliveryPoolMax: poolMax = deliveryPoolMaxDefault } =
      this.#options;
    const pools = new Array<ConnectionPool>();
    const managerOn = (purpose: string, max: number): PgTransactionManager => {
      const config = { ...this.#config, poolMax: max, idleMin: 0 };
      const name = `${applicationName} ${purpose}`;
      const pool = new ConnectionPool(config, name, this.place, this.#openedGuards, this.#warn);
      pools.push(pool);
      return new PgTransactionManager(shard, this, pool);
    };
    const client = (): pg.ClientConfig => ({
      ...connectionSettings(this.#config),
      application_name: `${applicationName} notifications`,
    });
    const notifications = { client, lifetimeMaxMs: this.#config.lifetimeMaxMs };
    const store = new PgDeliveryStore(managerOn('delivery', poolMax), managerOn('leases', 1), notifications);
    return { pools, store };
  }

  async #becomeReady(): Promise<void> {
    const isPrimary = this.#config.name === primaryConfig;
    const { migrate = 'on-start' } = this.#options;
    const opened = isPrimary ? await this.#open(migrate) : undefined;
    if (this.#closing.signal.aborted)
      throw new Error('The database was closed before it could serve', { cause: this.#notReady });
    this.#notReady = undefined;
    this.#isReady = true;
    this.pool.keepWarm();
    if (migrate === 'on-start' && opened?.hasEarlierIndex === true) this.#indexing = this.#replaceIndex();
  }

  /** A server without a connection for the question may serve all the same, on those that the requests have. */
  async #ask(): Promise<void> {
    try {
      await this.#askOnNewConnection();
    } catch (error) {
      const shard = this.#firstShard;
      if (sqlStateOf(error) !== noConnectionLeft || shard === undefined) throw error;
      await this.pool
        .use(shard, (client) => this.#askOn(client))
        .catch((failure: unknown) => {
          throw failure instanceof ShardUnavailableError ? error : failure;
        });
    }
  }

  async #askOnNewConnection(): Promise<void> {
    const client = new ClosingClient({
      ...connectionSettings(this.#config),
      connectionTimeoutMillis: pingTimeoutMs,
      query_timeout: pingTimeoutMs,
    });
    client.on('error', () => undefined);
    try {
      await client.connect();
      await this.#askOn(client);
    } finally {
      await client.end();
    }
  }

  async #askOn(client: pg.ClientBase): Promise<void> {
    await refuseWithoutWrites(client);
    await this.#refuseUnmigrated(client);
    await this.#held.ensure(client);
  }

  /** A database that is no member's `primary-config` may be without the framework's tables. */
  async #refuseUnmigrated(client: pg.ClientBase): Promise<void> {
    if (this.#config.name === primaryConfig) await refuseUnmigrated(client, this.#opening.migrateCommand);
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

  get #opening(): Opening {
    const { migrationsFolder, commands } = this.#options;
    return {
      migrationsFolder,
      guards: this.#guards,
      migrateCommand: commands?.migrate ?? defaultCommands.migrate,
      warn: (kind, message) => this.#warn({ kind, database: this.#config.path, message }),
      onIdentity: (identity) => (this.#identity = identity),
      signal: this.#closing.signal,
    };
  }

  /** Tries again for as long as it cannot be opened, or until it is closed. */
  async #open(migrate: MigrateMode): Promise<OpenedDatabase | undefined> {
    const { signal } = this.#closing;
    const retries = new OpeningRetries();
    while (!signal.aborted) {
      const startedMs = performance.now();
      try {
        if (migrate === 'on-start') return await migrateDatabase(this.#config, this.#opening);
        return await lookAtDatabase(this.#config, migrate === 'check', this.#opening);
      } catch (error) {
        if (signal.aborted) break;
        const reason = notReadyError(error, this.#config, migrate === 'on-start');
        this.#tell(reason);
        const delayMs = retries.delayMsAfter(error, reason, performance.now() - startedMs);
        await delay(delayMs, undefined, { signal }).catch(() => undefined);
      }
    }
    return undefined;
  }

  /** Each reason once: one that may pass is a warning only when the try before has failed as well. */
  #tell(reason: DatabaseNotReadyError): void {
    const before = this.#notReady;
    this.#notReady = reason;
    const { message } = reason;
    if (message !== before?.message) for (const listener of this.#onNotReady) listener(reason);
    if (this.#warnedOf.has(message) || (before === undefined && reason.mayPass)) return;
    if (this.#warnedOf.size === reasonsMax) this.#warnedOf.clear();
    this.#warnedOf.add(message);
    const told = `${this.place.toString()} is not ready: ${message}`;
    this.#warn({ kind: 'not-ready', database: this.#config.path, message: told });
  }
}
