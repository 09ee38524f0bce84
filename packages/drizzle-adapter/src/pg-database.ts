import { InvariantViolationError, type ShardIdentifier, ShardUnavailableError } from '@framework/core';
import {
  type ConfiguredDatabase,
  type Database,
  type DatabaseConfig,
  type DatabaseNotReadyError,
  DatabasesClosedError,
  type DeliveryStore,
  type MigrateMode,
  type PoolUse,
  outsideRequests,
  primaryConfig,
} from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

import { PgDeliveryStore } from './delivery/pg-delivery-store.js';
import { EpochGuard } from './delivery/pg-handler-cursors.js';
import { OwnedShards } from './migration/owned-shards.js';
import {
  type Opening,
  TablesInUseError,
  lookAtDatabase,
  migrateDatabase,
} from './migration/migrate-database.js';
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
import { databasePlace } from './connection/postgres-address.js';
import { refuseWithoutWrites } from './connection/server-role.js';
import { sqlStateOf } from './connection/storage-error.js';

/** How soon a database that may become ready at any moment is tried again. */
const retryMs = 500;
/** While somebody must correct something, the wait grows by this factor with each try, up to the maximum. */
const retryFactor = 2;
const retryMaxMs = 5_000;
/**
 * After a failed migration, the wait is this many times as long as the migration took: it may have held locks on
 * tables.
 */
const migrationRestFactor = 10;
const migrationRestMaxMs = 600_000;

/** Decides when to try again to open a database. */
export class OpeningRetries {
  #waitMs = retryMs;

  /**
   * How long to wait before the next try, in milliseconds.
   *
   * @param reason what `error` means for the database
   * @param tookMs how long the try took
   */
  delayMsAfter(error: unknown, reason: DatabaseNotReadyError, tookMs: number): number {
    this.#waitMs = reason.mayPass ? retryMs : Math.min(this.#waitMs * retryFactor, retryMaxMs);
    const heldTables = reason.kind === 'migration-failed' || error instanceof TablesInUseError;
    if (!heldTables) return this.#waitMs;
    return Math.max(this.#waitMs, Math.min(tookMs * migrationRestFactor, migrationRestMaxMs));
  }
}

const pingTimeoutMs = 2_000;
/** The SQLSTATE of a server or role that has no connections left. */
const noConnectionLeft = '53300';
const applicationNameDefault = 'framework';
const deliveryPoolMaxDefault = 2;

/** How many reasons for not being ready are remembered, so that each is reported once. */
const reasonsMax = 100;

/** The reason given until the first try to open the database has ended. */
const opening = 'it is being opened';

/** The connections and the store that a database has only for delivery. */
interface PgDelivery {
  /** By what they are for. */
  readonly pools: ReadonlyMap<string, ConnectionPool>;
  readonly store: PgDeliveryStore;
}

/** One PostgreSQL database: its connections, its migrations, and the transactions of its shards. */
export class PgDatabase implements Database {
  /** The connections for requests. */
  readonly pool: ConnectionPool;
  readonly writer: ChangeSetWriter = new ChangeSetWriter();
  readonly plainTables: PlainTables = new PlainTables();
  readonly groups: GroupWriter = new GroupWriter(this.plainTables);
  /** The queue of writes that ran into a lock: only a few of them wait in the database at a time. */
  readonly lockWaits: LockWaits;
  /** Names the shards and the address in errors. */
  readonly place: DatabasePlace;
  readonly #config: DatabaseConfig;
  readonly #options: PostgresOptions;
  readonly #owned: OwnedShards;
  /** These check a database while it is opened, before and after it is migrated. */
  readonly #guards: readonly ConnectionGuard[];
  /**
   * These check every new connection before it is used: after the database was opened, another one may have taken its place.
   */
  readonly #openedGuards: readonly ConnectionGuard[];
  readonly #warn: (warning: PostgresWarning) => void;
  readonly #closing = new AbortController();
  readonly #ready: Promise<void>;
  #isReady = false;
  /** The readiness check in progress, shared by all callers who ask meanwhile. */
  #asking: Promise<void> | undefined;
  #identity: string | undefined;
  readonly #firstShard: ShardIdentifier | undefined;
  #delivery: PgDelivery | undefined;
  /** Why the last try to open it failed. */
  #notReady: DatabaseNotReadyError | undefined;
  /** The reasons already reported to operators. */
  readonly #warnedOf = new Set<string>();
  readonly #onNotReady = new Set<(reason: DatabaseNotReadyError) => void>();

  constructor(database: ConfiguredDatabase, options: PostgresOptions) {
    const { config, shards } = database;
    [this.#firstShard] = shards;
    this.#config = config;
    this.#options = options;
    this.#warn = quiet(options.onWarning ?? printWarning);
    this.#owned = new OwnedShards(database, options.commands);
    const epochs = new EpochGuard(config.path, this.#warn);
    this.#guards = [epochs, this.#owned.whenOpening];
    this.#openedGuards = [{ ensure: (client) => this.#refuseUnmigrated(client) }, epochs, this.#owned];
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
    // An error is reported to the callers of ready(), if there are any.
    this.#ready.catch(() => undefined);
  }

  /** How long a statement may run, in milliseconds. */
  get statementTimeoutMs(): number {
    return this.#config.statementTimeoutMs;
  }

  transactionManager(shard: ShardIdentifier, name: string): PgTransactionManager {
    this.place.add(shard, name);
    return new PgTransactionManager(shard, this);
  }

  get delivery(): DeliveryStore {
    this.#delivery ??= this.#openDelivery();
    return this.#delivery.store;
  }

  pools(): readonly PoolUse[] {
    const { name: config, address } = this.#config;
    const place = `${databasePlace(address)}${config === primaryConfig ? '' : ` ${config}`}`;
    return [['requests', this.pool] as const, ...(this.#delivery?.pools ?? [])].map(([purpose, pool]) => ({
      name: `${place} ${purpose}`,
      ...pool.counts,
    }));
  }

  async ready(onNotReady: (reason: DatabaseNotReadyError) => void = () => undefined): Promise<void> {
    const listener = quiet(onNotReady);
    if (this.#notReady !== undefined) listener(this.#notReady);
    this.#onNotReady.add(listener);
    await this.#ready.finally(() => this.#onNotReady.delete(listener));
    this.#closing.signal.throwIfAborted();
  }

  get identity(): string | undefined {
    return this.#identity;
  }

  /**
   * @throws ShardUnavailableError `shard-unavailable`, with the reason, until the database is open; DatabasesClosedError
   * `databases-closed` once it is closed: otherwise, delivery would open new connections
   */
  assertReady(shard: ShardIdentifier): void {
    if (this.#closing.signal.aborted) throw new DatabasesClosedError(shard, this.place.of(shard));
    if (this.#isReady) return;
    if (this.#notReady !== undefined) throw this.place.unavailable(shard, this.#notReady);
    throw new ShardUnavailableError(shard, opening, { place: this.place.of(shard) });
  }

  async ping(): Promise<void> {
    this.#closing.signal.throwIfAborted();
    if (!this.#isReady) throw this.#notReady ?? new Error(opening);
    // The caller may be a request. Others share the check, so it must not run in that request's async context.
    this.#asking ??= outsideRequests(() => this.#ask()).finally(() => (this.#asking = undefined));
    await this.#asking.catch((error: unknown) => {
      throw notReadyError(error, this.#config);
    });
  }

  async close(): Promise<void> {
    const shard = this.#firstShard;
    this.#closing.abort(shard && new DatabasesClosedError(shard, this.place.of(shard)));
    const opened = this.#ready.catch(() => undefined);
    const pools = [this.pool, ...(this.#delivery?.pools.values() ?? [])];
    await Promise.all([...pools.map((pool) => pool.close()), opened]);
  }

  /**
   * Delivery has its own connections, so that requests and delivery do not wait for each other. Leases have one more of
   * their own: their renewals must not be delayed by other statements of delivery.
   */
  #openDelivery(): PgDelivery {
    const shard = this.#firstShard;
    if (shard === undefined)
      throw new InvariantViolationError('A database without shards has no events to deliver');
    const { applicationName = applicationNameDefault, deliveryPoolMax: poolMax = deliveryPoolMaxDefault } =
      this.#options;
    const pools = new Map<string, ConnectionPool>();
    const managerOn = (purpose: string, max: number): PgTransactionManager => {
      const config = { ...this.#config, poolMax: max, idleMin: 0 };
      const name = `${applicationName} ${purpose}`;
      const pool = new ConnectionPool(config, name, this.place, this.#openedGuards, this.#warn);
      pools.set(purpose, pool);
      return new PgTransactionManager(shard, this, pool);
    };
    const client = (): pg.ClientConfig => ({
      ...connectionSettings(this.#config),
      application_name: `${applicationName} notifications`,
    });
    const { signal: closing } = this.#closing;
    const notifications = { client, lifetimeMaxMs: this.#config.lifetimeMaxMs, closing };
    const store = new PgDeliveryStore(managerOn('delivery', poolMax), managerOn('leases', 1), notifications);
    return { pools, store };
  }

  async #becomeReady(): Promise<void> {
    const isPrimary = this.#config.name === primaryConfig;
    const { migrate = 'on-start' } = this.#options;
    if (isPrimary) await this.#open(migrate);
    this.#closing.signal.throwIfAborted();
    this.#notReady = undefined;
    this.#isReady = true;
    this.pool.keepWarm();
  }

  /**
   * When the server has no connection left for the check, it may still serve requests over their existing connections.
   */
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
    await this.#owned.ensure(client);
  }

  /** Only a member's `primary-config` must have the framework's tables. */
  async #refuseUnmigrated(client: pg.ClientBase): Promise<void> {
    if (this.#config.name === primaryConfig) await refuseUnmigrated(client, this.#opening.migrateCommand);
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

  /** Repeats until the database is open, or this object is closed. */
  async #open(migrate: MigrateMode): Promise<void> {
    const { signal } = this.#closing;
    const retries = new OpeningRetries();
    while (!signal.aborted) {
      const startedMs = performance.now();
      try {
        if (migrate === 'on-start') await migrateDatabase(this.#config, this.#opening);
        else await lookAtDatabase(this.#config, migrate === 'check', this.#opening);
        return;
      } catch (error) {
        if (signal.aborted) break;
        const reason = notReadyError(error, this.#config, migrate === 'on-start');
        this.#tell(reason);
        const delayMs = retries.delayMsAfter(error, reason, performance.now() - startedMs);
        await delay(delayMs, undefined, { signal }).catch(() => undefined);
      }
    }
  }

  /** Reports each reason once. A reason that may pass by itself is reported only if the previous try failed as well. */
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
