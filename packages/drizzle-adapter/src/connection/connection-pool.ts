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
import { SharedConnections } from './shared-connections.js';

/** How much later than the server the client gives a statement up, in milliseconds. */
const clientGraceMs = 1_000;

/** SQLSTATE of a statement that took too long, or was cancelled. */
const queryCanceled = '57014';

/** The server's process behind a connection, by which another connection can see whether it still works. */
export interface ServerSession {
  readonly pid: number;
  /** When it started, in seconds since 1970 with all digits: another process may get the same pid later. */
  readonly started: string;
}

/**
 * The connections of one database: bounded in number, in waiting callers and in time.
 *
 * A connection on which a deadline passed, or something else than a plain error of the server happened, is destroyed
 * and never handed out again.
 */
export class ConnectionPool {
  readonly #pool: pg.Pool;
  readonly #poolMax: number;
  readonly #queueMax: number;
  readonly #sessions = new WeakMap<pg.ClientBase, ServerSession>();
  readonly #shared: SharedConnections;

  /** @param epochs is asked about each new connection before it is used */
  constructor(config: DatabaseConfig, applicationName: string, epochs: EpochGuard) {
    this.#poolMax = config.poolMax;
    this.#queueMax = config.acquisitionQueueMax;
    this.#pool = new pg.Pool({
      ...connectionSettings(config),
      application_name: applicationName,
      max: config.poolMax,
      connectionTimeoutMillis: config.acquisitionTimeoutMs,
      statement_timeout: config.statementTimeoutMs,
      idle_in_transaction_session_timeout: config.statementTimeoutMs,
      query_timeout: config.statementTimeoutMs + clientGraceMs,
      keepAlive: true,
      // Statements that are sent without waiting for each other share one round trip.
      pipeline: true,
      stream: () => new BatchingSocket(),
      onConnect: async (client) => {
        await this.#prepareSession(client);
        await epochs.ensure(client, undefined);
      },
    });
    this.#pool.on('error', ignoreError);
    this.#shared = new SharedConnections(this);
  }

  /** How many connections can be lent at once; below 0, how many callers wait for one. */
  get freeCount(): number {
    const { idleCount, totalCount, waitingCount } = this.#pool;
    return idleCount + this.#poolMax - totalCount - waitingCount;
  }

  /**
   * Lends a connection to the work, for as long as it runs.
   *
   * @throws ShardUnavailableException `shard-unavailable` when there is none in time, or the queue is full
   */
  async use<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#acquire(shard);
    client.on('error', ignoreError);
    let broken = true;
    try {
      const result = await work(client);
      broken = false;
      return result;
    } catch (error) {
      broken = !this.isSoundAfter(error);
      throw error;
    } finally {
      client.removeListener('error', ignoreError);
      client.release(broken || client.getTransactionStatus() !== 'I');
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
    if (error instanceof StaleRecordException) return true;
    return isPlainServerError(error) && error.code !== queryCanceled;
  }

  /** Waits until every connection was given back, then closes all. */
  async close(): Promise<void> {
    await this.#pool.end();
  }

  #refuseBeyondQueue(shard: ShardIdentifier): void {
    if (this.#shared.waitingCount - this.freeCount < this.#queueMax) return;
    throw new ShardUnavailableException(shard, `${this.#queueMax} callers wait for a connection already`);
  }

  async #acquire(shard: ShardIdentifier): Promise<pg.PoolClient> {
    this.#refuseBeyondQueue(shard);
    try {
      return await this.#pool.connect();
    } catch (error) {
      throw new ShardUnavailableException(shard, 'no connection could be had', { cause: error });
    }
  }

  /** Learns which process of the server it is, and has values written in full, in the way in which Drizzle reads them. */
  async #prepareSession(client: pg.ClientBase): Promise<void> {
    const { rows } = await client.query<ServerSession>(
      `select pid, extract(epoch from backend_start)::text as started, set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false),
              set_config('IntervalStyle', 'postgres', false), set_config('extra_float_digits', '1', false)
       from pg_stat_activity where pid = pg_backend_pid()`,
    );
    const session = rows[0];
    const announced = (client as pg.ClientBase & { readonly processID: number }).processID;
    if (session?.pid === announced)
      this.#sessions.set(client, { pid: session.pid, started: session.started });
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

/** Whether the server refused a statement and the connection is as good as before. */
export function isPlainServerError(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && error.severity === 'ERROR';
}

/**
 * Listens to broken connections, which would end the process otherwise: the pool removes those that are idle, and a
 * statement that runs is rejected by itself.
 */
function ignoreError(): void {}
