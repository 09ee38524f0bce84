import { type ShardIdentifier, ShardUnavailableError, StaleRecordError } from '@framework/core';
import { type DatabaseConfig, DatabasesClosedError, primaryConfig } from '@framework/core/adapter';
import pg from 'pg';
import { parseIntoClientConfig } from 'pg-connection-string';

import { type ConnectionGuard, rejectUnreplicated } from './client.js';
import { type DatabasePlace, isExhausted } from './not-ready-error.js';
import { OpeningClient, type OpeningClientConfig, isUnanswered } from './opening-client.js';
import { databaseName } from './postgres-address.js';
import { type PostgresWarning, addressWithSsl, assertUrlParameters } from './postgres-options.js';
import { ServerInRecoveryError } from './server-role.js';
import { HistoryQuestion, type ServerSession, databaseHistory, prepareSession } from './server-session.js';
import { SharedConnections, adaptStatementNames } from './shared-connections.js';
import { isHarmless, isStatementInvalid, isReadOnly, isUnmigrated, silentRemedy } from './storage-error.js';
import { WarmConnections, watchLoan } from './warm-connections.js';

/** How long after the server's statement timeout the client gives up, in milliseconds. */
const clientGraceMs = 1_000;

/** Connections younger than this are not replaced because of a refusal: they saw the server as it is now. */
const renewedAgeMinMs = 1_000;

/**
 * The message with which a pooler refuses a startup parameter that it does not support; poolers do not translate it.
 */
const refusedParameter = /startup parameter/i;

/** The error when every new connection turned out to be outdated. */
const outdatedConnections =
  'every new connection was already outdated, as happens when the address resolves to several servers in turn';

/** The timeline count of a connection to a server that has been superseded; no known timeline has it. */
const noTimeline = 0;

/** A timeline of the server, as new connections find it. */
interface ServerTimeline {
  /** The server's own name for it; `undefined` before the first connection. */
  readonly name: string | undefined;
  /** Its number among the timelines that this pool has seen, from 1. */
  readonly count: number;
  /** When the first connection that saw it was opened. */
  readonly sinceMs: number;
}

/**
 * The connections of one database, with limits on connections, waiting callers and waiting time.
 *
 * A connection that missed a deadline, or failed in any way other than a plain server error, is destroyed and never
 * lent again. Connections to a server in recovery are not lent, except for a member's secondary configurations.
 */
export class ConnectionPool {
  /** How to ask this server for its timeline. */
  readonly history: HistoryQuestion = new HistoryQuestion();
  readonly #pool: pg.Pool;
  readonly #config: DatabaseConfig;
  readonly #place: DatabasePlace;
  readonly #guards: readonly ConnectionGuard[];
  readonly #warn: (warning: PostgresWarning) => void;
  readonly #sessions = new WeakMap<pg.ClientBase, ServerSession>();
  readonly #shared: SharedConnections;
  /** Connections that must not be used again. */
  readonly #discarded = new WeakSet<pg.ClientBase>();
  /** Connections of an earlier generation are replaced before their next use. */
  readonly #births = new WeakMap<pg.ClientBase, { readonly generation: number; readonly atMs: number }>();
  #generation = 0;
  #timeline: ServerTimeline = { name: undefined, count: 1, sinceMs: 0 };
  readonly #timelines = new WeakMap<pg.ClientBase, number>();
  #namesStatements = true;
  #sendsParameters = true;
  #hasWarnedOfPooler = false;
  /** Whether the server failed to answer the last new connection in time; any answer resets it. */
  #isSilent = false;
  /** Whether a caller is currently checking if the server answers again. */
  #isProbing = false;
  readonly #kept: WarmConnections;
  /** How many callers wait for a connection. */
  #waitingCount = 0;
  /** Resolves when no caller waits any more; set once the pool is closing. */
  #closing: PromiseWithResolvers<void> | undefined;

  /**
   * @param place names the shard and database in errors
   * @param guards check each new connection before it is used, in order
   * @param warn receives conditions that operators should know about
   */
  constructor(
    config: DatabaseConfig,
    applicationName: string,
    place: DatabasePlace,
    guards: readonly ConnectionGuard[],
    warn: (warning: PostgresWarning) => void,
  ) {
    this.#config = config;
    this.#place = place;
    this.#guards = guards;
    this.#warn = warn;
    const { idleMin } = config;
    const options: pg.PoolConfig & OpeningClientConfig = {
      address: () => connectionSettings(config),
      application_name: applicationName,
      max: config.poolMax,
      min: idleMin,
      idleTimeoutMillis: config.idleTimeoutMs,
      maxLifetimeSeconds: config.lifetimeMaxMs / 1_000,
      connectionTimeoutMillis: config.acquisitionTimeoutMs,
      statement_timeout: config.statementTimeoutMs,
      idle_in_transaction_session_timeout: config.statementTimeoutMs,
      query_timeout: config.statementTimeoutMs + clientGraceMs,
      keepAlive: true,
      // Statements that are sent without waiting for each other's answers share one round trip.
      pipeline: true,
      Client: OpeningClient,
      // The pool creates only clients of this class.
      onConnect: (client) => (client as OpeningClient).prepare(() => this.#prepare(client)),
    };
    this.#pool = new pg.Pool(options);
    assertUrlParameters(config);
    this.#pool.on('error', ignoreError);
    this.#kept = new WarmConnections(this.#pool, idleMin);
    this.#pool.on('remove', () => this.#kept.fill());
    this.#shared = new SharedConnections(this);
  }

  /** How many more connections can be lent now. A negative number says how many callers wait for one. */
  get freeCount(): number {
    const { idleCount, totalCount, waitingCount } = this.#pool;
    return idleCount + this.#config.poolMax - totalCount - waitingCount;
  }

  /** How it is used now. At most `acquisitionQueueMax` callers may wait. */
  get counts(): Readonly<Record<'max' | 'usedCount' | 'idleCount' | 'pendingCount', number>> {
    const { idleCount, totalCount } = this.#pool;
    const pendingCount = Math.max(0, this.#shared.waitingCount - this.freeCount);
    return { max: this.#config.poolMax, usedCount: totalCount - idleCount, idleCount, pendingCount };
  }

  /**
   * Lends a connection for as long as the work runs.
   *
   * @throws ShardUnavailableError `shard-unavailable` when no connection is free in time, or the queue is full;
   * DatabasesClosedError `databases-closed` once the pool is closed
   */
  async use<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#acquire(shard);
    const { leakThresholdMs } = this.#config;
    const endWatch = leakThresholdMs > 0 ? watchLoan(this.#config, leakThresholdMs, this.#warn) : undefined;
    try {
      return await work(client);
    } catch (error) {
      if (!this.isSoundAfter(error)) this.discard(client);
      throw error;
    } finally {
      endWatch?.();
      client.release(this.#discarded.has(client) || client.getTransactionStatus() !== 'I');
    }
  }

  /**
   * Lets the work send one statement, which is its own transaction, on a connection that is shared with others.
   *
   * @throws ShardUnavailableError `shard-unavailable`, DatabasesClosedError `databases-closed` as {@link use}
   */
  async share<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    this.#refuseWhenClosed(shard);
    this.#refuseWhileSilent(shard);
    this.#refuseBeyondQueue(shard);
    return this.#shared.share(shard, work);
  }

  /** The error for a caller who could not get a connection. */
  unavailable(shard: ShardIdentifier, error: unknown): ShardUnavailableError | DatabasesClosedError {
    return this.#place.unavailable(shard, error);
  }

  /** The server process behind a connection; `undefined` when a pooler hides it. */
  sessionOf(client: pg.ClientBase): ServerSession | undefined {
    return this.#sessions.get(client);
  }

  /** The timeline of the connections that are lent now. Connections that are lent later may have a later one. */
  get timeline(): number {
    return this.#timeline.count;
  }

  /** The timeline of the server behind a connection, or the latest known one when a pooler hides it. */
  timelineOf(client: pg.ClientBase): number {
    return this.#timelines.get(client) ?? this.timeline;
  }

  /** Whether a connection is still usable; never after a deadline, whatever the server says about it. */
  isSoundAfter(error: unknown): boolean {
    return error instanceof StaleRecordError || isHarmless(error);
  }

  /** Marks a connection to be destroyed when it is returned. */
  discard(client: pg.ClientBase): void {
    this.#discarded.add(client);
  }

  /**
   * Whether a statement refused with this error may succeed on a new connection. If so, connections as old as this one
   * are not lent any more.
   *
   * A session that was opened while the server was read-only, or that leads to a demoted server, refuses writes for its
   * whole life. When the framework's tables disappear under a session, a new connection helps, too, because it is
   * refused until all tables are back.
   *
   * @param client the connection that refused it; `undefined` when nothing was sent
   */
  retireIfStale(error: unknown, client: pg.ClientBase | undefined): boolean {
    if (client === undefined) return false;
    const isCurrent = this.#isCurrent(client);
    if (isReadOnly(error) || isUnmigrated(error)) {
      if (isCurrent && performance.now() - this.#createdMs(client) < renewedAgeMinMs) return false;
    } else if (isStatementInvalid(error)) {
      // A pooler that does not track statement names may send the next statement to another process.
      if (!this.#sessions.has(client)) this.#namesStatements = false;
    } else {
      return false;
    }
    if (isCurrent) {
      this.#generation++;
      this.#shared.takeNoMore();
    }
    return true;
  }

  /** Opens the minimum of connections in the background, and tries again later if that fails. */
  keepWarm(): void {
    this.#kept.fill();
  }

  /** Refuses new callers, lets waiting callers finish with a connection, and then closes all connections. */
  async close(): Promise<void> {
    this.#closing = Promise.withResolvers();
    this.#kept.close();
    // The driver's pool waits for connections that are in use, but not for callers that still wait for one.
    if (this.#waitingCount > 0) await this.#closing.promise;
    await this.#pool.end();
  }

  #refuseWhenClosed(shard: ShardIdentifier): void {
    if (this.#closing === undefined) return;
    throw new DatabasesClosedError(shard, this.#place.of(shard));
  }

  #refuseBeyondQueue(shard: ShardIdentifier): void {
    const { acquisitionQueueMax } = this.#config;
    if (this.#shared.waitingCount - this.freeCount < acquisitionQueueMax) return;
    throw new ShardUnavailableError(shard, `${acquisitionQueueMax} callers already wait for a connection`, {
      place: this.#place.of(shard),
    });
  }

  async #acquire(shard: ShardIdentifier): Promise<pg.PoolClient> {
    this.#refuseWhenClosed(shard);
    this.#refuseWhileSilent(shard);
    this.#refuseBeyondQueue(shard);
    this.#waitingCount++;
    try {
      return await this.#connectOrProbe();
    } catch (error) {
      throw this.unavailable(shard, error);
    } finally {
      if (--this.#waitingCount === 0) this.#closing?.resolve();
    }
  }

  /**
   * While the server does not answer, one caller at a time tries a new connection and the others are refused at once.
   * Otherwise callers who need only other shards would queue behind them.
   */
  #refuseWhileSilent(shard: ShardIdentifier): void {
    if (!this.#isProbing || this.#pool.idleCount > 0) return;
    throw new ShardUnavailableError(
      shard,
      `the server did not answer the last new connection in time, and another attempt is in progress: ${silentRemedy}`,
      { place: this.#place.of(shard), kind: 'unreachable' },
    );
  }

  async #connectOrProbe(): Promise<pg.PoolClient> {
    const isProbe = this.#isSilent && this.#pool.idleCount === 0;
    this.#isProbing ||= isProbe;
    try {
      return await this.#connect();
    } catch (error) {
      if (isUnanswered(error)) this.#isSilent = true;
      else if (isProbe && !isExhausted(error)) this.#isSilent = false;
      throw error;
    } finally {
      if (isProbe) this.#isProbing = false;
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    const sentParameters = this.#sendsParameters;
    const { acquisitionTimeoutMs } = this.#config;
    const deadlineMs = performance.now() + acquisitionTimeoutMs;
    try {
      for (;;) {
        const client = await this.#pool.connect();
        if (this.#isCurrent(client)) return client;
        client.release(true);
        if (performance.now() > deadlineMs) throw new Error(outdatedConnections);
      }
    } catch (error) {
      // What counts is whether this attempt sent parameters: another caller may have turned them off in the meantime.
      if (!sentParameters || !isRefusedParameter(error)) throw error;
      this.#sendsParameters = false;
      Object.assign(this.#pool.options, {
        statement_timeout: undefined,
        idle_in_transaction_session_timeout: undefined,
      });
      return this.#connect();
    }
  }

  async #prepare(client: pg.ClientBase): Promise<void> {
    // This listener stays for the client's whole life: the borrower learns of a break from its running statement.
    client.on('error', ignoreError);
    rejectUnreplicated(client);
    this.#births.set(client, { generation: this.#generation, atMs: performance.now() });
    const { session, isInRecovery, obstacles } = await prepareSession(
      client,
      this.history,
      this.#config.statementTimeoutMs,
    );
    // A standby behind the primary's address would return old rows, and report committed actions as missing.
    if (isInRecovery && this.#config.name === primaryConfig) throw new ServerInRecoveryError();
    if (session !== undefined) this.#sessions.set(client, session);
    else adaptStatementNames(client, this.#namesStatements);
    // Checked every time: a dump of another server may have been restored into the same server under the same name.
    for (const guard of this.#guards) await guard.ensure(client);
    // Comes last, so that a refused server never counts as the new primary.
    if (session?.timeline !== undefined && this.#config.name === primaryConfig)
      this.#recordTimeline(client, `${session.timeline} ${await databaseHistory(client)}`);
    this.#isSilent = false;
    if (obstacles.length === 0 || this.#hasWarnedOfPooler) return;
    this.#hasWarnedOfPooler = true;
    this.#warn({ kind: 'pooler-settings', database: this.#config.path, message: obstacles.join('; ') });
  }

  /**
   * Records the timeline of the server behind a new connection. If it is new, connections to the old server are no
   * longer lent.
   */
  #recordTimeline(client: pg.ClientBase, timeline: string): void {
    const { name, count, sinceMs } = this.#timeline;
    if (name !== timeline) {
      const createdMs = this.#createdMs(client);
      // This connection was opened before the current timeline was seen, so it leads to an older one.
      if (createdMs < sinceMs) return void this.#timelines.set(client, noTimeline);
      this.#timeline = { name: timeline, count: name === undefined ? count : count + 1, sinceMs: createdMs };
      if (name !== undefined) this.#shared.takeNoMore();
    }
    this.#timelines.set(client, this.#timeline.count);
  }

  /** Whether a connection is of the current generation and on the current timeline. */
  #isCurrent(client: pg.ClientBase): boolean {
    return (
      this.#births.get(client)?.generation === this.#generation && this.timelineOf(client) === this.timeline
    );
  }

  #createdMs(client: pg.ClientBase): number {
    return this.#births.get(client)?.atMs ?? 0;
  }
}

/**
 * The address, user and TLS settings for a connection outside of a pool.
 *
 * @throws ConfigurationError `invalid-configuration` when the URL has a parameter that would be ignored, and a system
 * error when a certificate file cannot be read
 */
export function connectionSettings(config: DatabaseConfig): pg.ClientConfig {
  assertUrlParameters(config);
  const { user: _user, password: _password, ...address } = parseIntoClientConfig(addressWithSsl(config));
  if (typeof address.ssl === 'object') Object.defineProperty(address.ssl, 'key', { enumerable: false });
  return {
    ...address,
    // `pg` leaves some escapes undecoded, such as that of a semicolon.
    database: databaseName(config.address),
    ...(config.username !== undefined && { user: config.username }),
    ...(config.password !== undefined && { password: config.password.reveal() }),
  };
}

function isRefusedParameter(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '08P01' && refusedParameter.test(error.message);
}

/**
 * Handles errors of broken connections, which would otherwise end the process. The pool removes idle ones itself, and a
 * running statement is rejected on its own.
 */
function ignoreError(): void {}
