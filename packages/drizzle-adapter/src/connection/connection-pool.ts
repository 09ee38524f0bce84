import {
  type DatabaseConfig,
  type ShardIdentifier,
  ShardUnavailableException,
  StaleRecordException,
} from '@framework/core';
import pg from 'pg';
import { parseIntoClientConfig } from 'pg-connection-string';
import type { EpochGuard } from '../delivery/epoch-guard.js';
import { BatchingSocket } from './batching-socket.js';
import { watchLoan } from './loan-watch.js';
import type { PostgresWarning } from './postgres-options.js';
import { adaptStatementNames } from './pooled-statements.js';
import { isHarmless, isOutgrown } from './server-error.js';
import { HistoryQuestion, type ServerSession } from './server-session.js';
import { prepareSession } from './session-settings.js';
import { SharedConnections } from './shared-connections.js';

/** How much later than the server the client gives a statement up, in milliseconds. */
const clientGraceMs = 1_000;
/** How long it takes until connections are tried again that are to be kept open, in milliseconds. */
const refillDelayMs = 5_000;

/** What a pooler says, in no other language, to a parameter that it cannot hand on. */
const refusedParameter = /startup parameter/i;

/**
 * The connections of one database: bounded in number, in waiting callers and in time.
 *
 * A connection on which a deadline passed, or something else than a plain error of the server happened, is destroyed
 * and never handed out again.
 */
export class ConnectionPool {
  /** How this server tells where it stands in its history. */
  readonly history: HistoryQuestion = new HistoryQuestion();
  readonly #pool: pg.Pool;
  readonly #config: DatabaseConfig;
  readonly #epochs: EpochGuard;
  readonly #warn: (warning: PostgresWarning) => void;
  readonly #sessions = new WeakMap<pg.ClientBase, ServerSession>();
  readonly #shared: SharedConnections;
  /** Those that must not be used again. */
  readonly #discarded = new WeakSet<pg.ClientBase>();
  /** Connections of an earlier generation are replaced before they are used again. */
  readonly #generations = new WeakMap<pg.ClientBase, number>();
  #generation = 0;
  #namesStatements = true;
  #sendsParameters = true;
  #hasWarnedOfPooler = false;
  readonly #idleMin: number;
  #isWarming = false;
  #refill: NodeJS.Timeout | undefined;

  /**
   * @param epochs is asked about each new connection before it is used
   * @param warn is told what operators should know
   */
  constructor(
    config: DatabaseConfig,
    applicationName: string,
    epochs: EpochGuard,
    warn: (warning: PostgresWarning) => void,
  ) {
    this.#config = config;
    this.#epochs = epochs;
    this.#warn = warn;
    this.#idleMin = Math.min(config.idleMin, config.poolMax);
    this.#pool = new pg.Pool({
      ...connectionSettings(config),
      application_name: applicationName,
      max: config.poolMax,
      min: this.#idleMin,
      idleTimeoutMillis: config.idleTimeoutMs,
      connectionTimeoutMillis: config.acquisitionTimeoutMs,
      statement_timeout: config.statementTimeoutMs,
      idle_in_transaction_session_timeout: config.statementTimeoutMs,
      query_timeout: config.statementTimeoutMs + clientGraceMs,
      keepAlive: true,
      // Statements that are sent without waiting for each other share one round trip.
      pipeline: true,
      stream: () => new BatchingSocket(),
      onConnect: (client) => this.#prepare(client),
    });
    this.#pool.on('error', ignoreError);
    if (this.#idleMin > 0) this.#pool.on('remove', () => this.keepWarm());
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
   * @throws ShardUnavailableException `shard-unavailable` when there is none in time, or the queue is full
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
   * @throws ShardUnavailableException `shard-unavailable` as {@link use}
   */
  async share<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    this.#refuseBeyondQueue(shard);
    return this.#shared.share(shard, work);
  }

  /** The server's process behind a connection; `undefined` when something between client and server hides it. */
  sessionOf(client: pg.ClientBase): ServerSession | undefined {
    return this.#sessions.get(client);
  }

  /** Whether a connection is as good as before; not after a deadline, whatever the server says about it. */
  isSoundAfter(error: unknown): boolean {
    return error instanceof StaleRecordException || isHarmless(error);
  }

  /** Has a connection destroyed when it is given back. */
  discard(client: pg.ClientBase): void {
    this.#discarded.add(client);
  }

  /**
   * Whether what was refused with this error succeeds on a new connection; from now on nobody gets one as old as this.
   *
   * @param client on which it was refused; `undefined` when nothing was sent
   */
  renewsAfter(error: unknown, client: pg.ClientBase | undefined): boolean {
    if (client === undefined || !isOutgrown(error)) return false;
    // A pooler that does not keep track of names gives the next statement to another process.
    if (!this.#sessions.has(client)) this.#namesStatements = false;
    if (this.#generations.get(client) === this.#generation) {
      this.#generation++;
      this.#shared.takeNoMore();
    }
    return true;
  }

  /** Opens as many connections as are to be kept open, in the background; again later when that fails. */
  keepWarm(): void {
    const { ending, idleCount, totalCount } = this.#pool;
    const missing = this.#idleMin - totalCount;
    if (missing <= 0 || ending || this.#isWarming) return;
    this.#isWarming = true;
    // Idle ones are lent first, and all at once, so that the further ones are new.
    const loans = Array.from({ length: idleCount + missing }, () => this.#pool.connect());
    void this.#giveBackAll(loans);
  }

  /** Waits until every connection was given back, then closes all. */
  async close(): Promise<void> {
    clearTimeout(this.#refill);
    await this.#pool.end();
  }

  async #giveBackAll(loans: readonly Promise<pg.PoolClient>[]): Promise<void> {
    const outcomes = await Promise.allSettled(loans);
    this.#isWarming = false;
    for (const outcome of outcomes) if (outcome.status === 'fulfilled') outcome.value.release();
    clearTimeout(this.#refill);
    if (outcomes.every(({ status }) => status === 'fulfilled')) this.keepWarm();
    else this.#refill = setTimeout(() => this.keepWarm(), refillDelayMs).unref();
  }

  #refuseBeyondQueue(shard: ShardIdentifier): void {
    const { acquisitionQueueMax } = this.#config;
    if (this.#shared.waitingCount - this.freeCount < acquisitionQueueMax) return;
    throw new ShardUnavailableException(
      shard,
      `${acquisitionQueueMax} callers wait for a connection already`,
    );
  }

  async #acquire(shard: ShardIdentifier): Promise<pg.PoolClient> {
    this.#refuseBeyondQueue(shard);
    try {
      return await this.#connect();
    } catch (error) {
      throw new ShardUnavailableException(shard, 'no connection could be had', { cause: error });
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    const sentParameters = this.#sendsParameters;
    try {
      for (;;) {
        const client = await this.#pool.connect();
        if (this.#generations.get(client) === this.#generation) return client;
        client.release(true);
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
    // For its whole life: whoever borrowed it learns of a break by the statement that runs.
    client.on('error', ignoreError);
    this.#generations.set(client, this.#generation);
    const { session, obstacles } = await prepareSession(
      client,
      this.history,
      this.#config.statementTimeoutMs,
    );
    if (session !== undefined) this.#sessions.set(client, session);
    else adaptStatementNames(client, this.#namesStatements);
    // Asked each time: a dump of another server may have been restored on the same one, under the same name.
    await this.#epochs.ensure(client);
    if (obstacles.length === 0 || this.#hasWarnedOfPooler) return;
    this.#hasWarnedOfPooler = true;
    this.#warn({ kind: 'pooler-settings', database: this.#config.path, message: obstacles.join('; ') });
  }
}

/** Where to connect and as whom, for a connection outside of a pool. */
export function connectionSettings(config: DatabaseConfig): pg.ClientConfig {
  const { user: _user, password: _password, ...address } = parseIntoClientConfig(config.address);
  return {
    ...address,
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
