import { type ShardIdentifier, ShardUnavailableError, StaleRecordError } from '@framework/core';
import { type DatabaseConfig, databaseName, primaryConfig } from '@framework/core/adapter';
import pg from 'pg';
import { parseIntoClientConfig } from 'pg-connection-string';

import type { ConnectionGuard } from './client.js';
import { type DatabasePlace, isExhausted } from './not-ready-error.js';
import { OpeningClient, type OpeningClientConfig, isUnanswered } from './opening-client.js';
import { type PostgresWarning, assertUrlParameters } from './postgres-options.js';
import { ServerInRecoveryError } from './server-role.js';
import { HistoryQuestion, type ServerSession, databaseRun, prepareSession } from './server-session.js';
import { SharedConnections, adaptStatementNames } from './shared-connections.js';
import { isHarmless, isOutgrown, isReadOnly, isUnmigrated, silentRemedy } from './storage-error.js';
import { WarmConnections, watchLoan } from './warm-connections.js';

/** How much later than the server the client gives a statement up, in milliseconds. */
const clientGraceMs = 1_000;

/** How old a connection is that is replaced because of what it refuses: younger ones know the server as it is now. */
const renewedAgeMinMs = 1_000;

/** What a pooler says, in no other language, to a parameter that it cannot hand on. */
const refusedParameter = /startup parameter/i;

/** What a caller gets who got one connection after the other that must not be used. */
const outdatedConnections =
  'every new connection was outdated before it could be used, as when the address leads to several servers in turn';

/** The count of a connection to a server from which another one has taken over: none of the timelines has it. */
const noTimeline = 0;

/** A server's timeline, as new connections meet it. */
interface ServerTimeline {
  /** As the server tells it; `undefined` before the first connection. */
  readonly name: string | undefined;
  /** Which one of those that this pool has met, from 1. */
  readonly count: number;
  /** When the connection was opened that met it first. */
  readonly sinceMs: number;
}

/**
 * The connections of one database: bounded in number, in waiting callers and in time.
 *
 * A connection on which a deadline passed, or something else than a plain error of the server happened, is destroyed
 * and never handed out again. None to a server in recovery is handed out, except by a further config of a member.
 */
export class ConnectionPool {
  /** How this server tells where it stands in its history. */
  readonly history: HistoryQuestion = new HistoryQuestion();
  readonly #pool: pg.Pool;
  readonly #config: DatabaseConfig;
  readonly #place: DatabasePlace;
  readonly #guards: readonly ConnectionGuard[];
  readonly #warn: (warning: PostgresWarning) => void;
  readonly #sessions = new WeakMap<pg.ClientBase, ServerSession>();
  readonly #shared: SharedConnections;
  /** Those that must not be used again. */
  readonly #discarded = new WeakSet<pg.ClientBase>();
  /** Connections of an earlier generation are replaced before they are used again. */
  readonly #births = new WeakMap<pg.ClientBase, { readonly generation: number; readonly atMs: number }>();
  #generation = 0;
  #timeline: ServerTimeline = { name: undefined, count: 1, sinceMs: 0 };
  readonly #timelines = new WeakMap<pg.ClientBase, number>();
  #namesStatements = true;
  #sendsParameters = true;
  #hasWarnedOfPooler = false;
  /** Whether the last new connection was not answered in time; any answer to one ends it. */
  #isSilent = false;
  /** Whether a caller is finding out whether it answers again. */
  #isProbing = false;
  readonly #kept: WarmConnections;
  /** How many callers wait for a connection. */
  #waitingCount = 0;
  /** Settled when nobody waits any more; set once it is being closed. */
  #closing: PromiseWithResolvers<void> | undefined;

  /**
   * @param place says where errors happened
   * @param guards are asked about each new connection before it is used, in order
   * @param warn called with what operators should know
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
    const idleMin = Math.min(config.idleMin, config.poolMax);
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
      // Statements that are sent without waiting for each other share one round trip.
      pipeline: true,
      Client: OpeningClient,
      // Of no other class.
      onConnect: (client) => (client as OpeningClient).prepare(() => this.#prepare(client)),
    };
    this.#pool = new pg.Pool(options);
    assertUrlParameters(config);
    this.#pool.on('error', ignoreError);
    this.#kept = new WarmConnections(this.#pool, idleMin);
    this.#pool.on('remove', () => this.#kept.fill());
    this.#shared = new SharedConnections(this);
  }

  /** How many connections can be lent at once; below 0, how many callers wait for one. */
  get freeCount(): number {
    const { idleCount, totalCount, waitingCount } = this.#pool;
    return idleCount + this.#config.poolMax - totalCount - waitingCount;
  }

  /**
   * Lends a connection to the work, for as long as it runs.
   *
   * @throws ShardUnavailableError `shard-unavailable` when there is none in time, or the queue is full
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
   * Lets the work send one statement, which is a transaction of its own, on a connection that others use as well.
   *
   * @throws ShardUnavailableError `shard-unavailable` as {@link use}
   */
  async share<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    this.#refuseWhenClosed(shard);
    this.#refuseWhileSilent(shard);
    this.#refuseBeyondQueue(shard);
    return this.#shared.share(shard, work);
  }

  /** What a caller gets for whom no connection could be had. */
  unavailable(shard: ShardIdentifier, error: unknown): ShardUnavailableError {
    return this.#place.unavailable(shard, error);
  }

  /** The server's process behind a connection; `undefined` when something between client and server hides it. */
  sessionOf(client: pg.ClientBase): ServerSession | undefined {
    return this.#sessions.get(client);
  }

  /** That of the connections that are lent now; those that are lent later may have a later one. */
  get timeline(): number {
    return this.#timeline.count;
  }

  /** That of the server behind a connection; of the last one that was opened, when something between client and server hides it. */
  timelineOf(client: pg.ClientBase): number {
    return this.#timelines.get(client) ?? this.timeline;
  }

  /** Whether a connection is as good as before; not after a deadline, whatever the server says about it. */
  isSoundAfter(error: unknown): boolean {
    return error instanceof StaleRecordError || isHarmless(error);
  }

  /** Has a connection destroyed when it is given back. */
  discard(client: pg.ClientBase): void {
    this.#discarded.add(client);
  }

  /**
   * Whether what was refused with this error may succeed on a new connection; from now on, connections as old as this one
   * are not lent.
   *
   * A session that was opened while the server took no writes, or that leads to a server which does not lead any more,
   * refuses writes for its whole life. One under which the framework's tables went away was asked for them before: a new one
   * is refused until they are there as a whole.
   *
   * @param client on which it was refused; `undefined` when nothing was sent
   */
  renewsAfter(error: unknown, client: pg.ClientBase | undefined): boolean {
    if (client === undefined) return false;
    const isOfNow = this.#isOfNow(client);
    if (isReadOnly(error) || isUnmigrated(error)) {
      if (isOfNow && performance.now() - this.#bornMs(client) < renewedAgeMinMs) return false;
    } else if (isOutgrown(error)) {
      // A pooler that does not keep track of names gives the next statement to another process.
      if (!this.#sessions.has(client)) this.#namesStatements = false;
    } else {
      return false;
    }
    if (isOfNow) {
      this.#generation++;
      this.#shared.takeNoMore();
    }
    return true;
  }

  /** Opens as many connections as are to be kept open, in the background; again later when that fails. */
  keepWarm(): void {
    this.#kept.fill();
  }

  /** Refuses further callers, waits until those who are there have had a connection and given it back, and closes all. */
  async close(): Promise<void> {
    this.#closing = Promise.withResolvers();
    this.#kept.close();
    // The driver's pool waits for those who have a connection, and leaves those without one who wait for it.
    if (this.#waitingCount > 0) await this.#closing.promise;
    await this.#pool.end();
  }

  #refuseWhenClosed(shard: ShardIdentifier): void {
    if (this.#closing === undefined) return;
    const reason = 'this process has closed its databases';
    throw new ShardUnavailableError(shard, reason, { place: this.#place.of(shard) });
  }

  #refuseBeyondQueue(shard: ShardIdentifier): void {
    const { acquisitionQueueMax } = this.#config;
    if (this.#shared.waitingCount - this.freeCount < acquisitionQueueMax) return;
    throw new ShardUnavailableError(shard, `${acquisitionQueueMax} callers wait for a connection already`, {
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
   * One caller at a time waits for a server that did not answer in time; the others are refused at once, so that nobody
   * waits behind them who needs other shards only.
   */
  #refuseWhileSilent(shard: ShardIdentifier): void {
    if (!this.#isProbing || this.#pool.idleCount > 0) return;
    throw new ShardUnavailableError(
      shard,
      `the server did not answer the last new connection in time, and the next one is under way: ${silentRemedy}`,
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
        if (this.#isOfNow(client)) return client;
        client.release(true);
        if (performance.now() > deadlineMs) throw new Error(outdatedConnections);
      }
    } catch (error) {
      // Several callers may learn it at once.
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
    // For its whole life: a borrower notices a break by the statement that runs.
    client.on('error', ignoreError);
    this.#births.set(client, { generation: this.#generation, atMs: performance.now() });
    const { session, isInRecovery, obstacles } = await prepareSession(
      client,
      this.history,
      this.#config.statementTimeoutMs,
    );
    // A standby behind the primary's name would read what is old, and refuse by it what was committed.
    if (isInRecovery && this.#config.name === primaryConfig) throw new ServerInRecoveryError();
    if (session !== undefined) this.#sessions.set(client, session);
    else adaptStatementNames(client, this.#namesStatements);
    // Asked each time: a dump of another server may have been restored on the same one, under the same name.
    for (const guard of this.#guards) await guard.ensure(client);
    // Last: a server that is refused takes over from nobody.
    if (session?.timeline !== undefined && this.#config.name === primaryConfig)
      this.#meetTimeline(client, `${session.timeline} ${await databaseRun(client)}`);
    this.#isSilent = false;
    if (obstacles.length === 0 || this.#hasWarnedOfPooler) return;
    this.#hasWarnedOfPooler = true;
    this.#warn({ kind: 'pooler-settings', database: this.#config.path, message: obstacles.join('; ') });
  }

  /** Takes note of the server behind a new connection; when another one has taken over, those that lead to the old one are not lent. */
  #meetTimeline(client: pg.ClientBase, timeline: string): void {
    const { name, count, sinceMs } = this.#timeline;
    if (name !== timeline) {
      const bornMs = this.#bornMs(client);
      // What it has met is older than what is known.
      if (bornMs < sinceMs) return void this.#timelines.set(client, noTimeline);
      this.#timeline = { name: timeline, count: name === undefined ? count : count + 1, sinceMs: bornMs };
      if (name !== undefined) this.#shared.takeNoMore();
    }
    this.#timelines.set(client, this.#timeline.count);
  }

  /** Whether a connection is neither to be replaced nor one to a server from which another one has taken over. */
  #isOfNow(client: pg.ClientBase): boolean {
    return (
      this.#births.get(client)?.generation === this.#generation && this.timelineOf(client) === this.timeline
    );
  }

  #bornMs(client: pg.ClientBase): number {
    return this.#births.get(client)?.atMs ?? 0;
  }
}

/**
 * Where to connect and as whom, for a connection outside of a pool.
 *
 * @throws ConfigurationError `invalid-configuration` when the URL has a parameter that would be ignored, and the error
 * of the system when the file of a certificate cannot be read
 */
export function connectionSettings(config: DatabaseConfig): pg.ClientConfig {
  assertUrlParameters(config);
  const { user: _user, password: _password, ...address } = parseIntoClientConfig(config.address);
  if (typeof address.ssl === 'object') Object.defineProperty(address.ssl, 'key', { enumerable: false });
  return {
    ...address,
    // `pg` leaves some escapes as they are, such as that of a semicolon.
    database: databaseName(config.address),
    ...(config.username !== undefined && { user: config.username }),
    ...(config.password !== undefined && { password: config.password.reveal() }),
  };
}

function isRefusedParameter(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '08P01' && refusedParameter.test(error.message);
}

/**
 * Listens to broken connections, which would end the process otherwise: the pool removes those that are idle, and a
 * statement that runs is rejected by itself.
 */
function ignoreError(): void {}
