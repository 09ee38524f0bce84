import type { ShardIdentifier } from '@framework/core';
import { outsideRequests } from '@framework/core/adapter';
import { createHash } from 'node:crypto';
import { type EventLoopUtilization, performance } from 'node:perf_hooks';
import type pg from 'pg';

/** How many connections a busy process shares before it lets statements queue on them. */
const fewCount = 4;
/** How many unanswered statements a shared connection may have before another connection is opened. */
const depthMax = 4;
/**
 * How long a connection takes new statements. It must return to the pool now and then, because the pool limits its age.
 */
const takingMaxMs = 10_000;
/** How long a connection may stay silent before it gets no new statements, in milliseconds. */
const silenceMaxMs = 50;

/** The pool from which the connections come. */
export interface ConnectionSource {
  /** How many more connections the pool can lend now. A negative number says how many callers wait for one. */
  readonly freeCount: number;
  /**
   * Lends a connection for as long as the work runs, and destroys it when the work fails with an error that makes it
   * unusable.
   */
  use(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<void>): Promise<void>;
  /** The error for a caller who could not get a connection. */
  unavailable(shard: ShardIdentifier, error: unknown): Error;
  /** Whether a connection is still usable after a statement on it has failed with this error. */
  isSoundAfter(error: unknown): boolean;
}

/** A connection that accepts statements without waiting for the answers to earlier ones. */
interface SharedConnection {
  readonly client: Promise<pg.PoolClient>;
  /** Returns the connection to the pool. */
  readonly end: () => void;
  readonly takenAtMs: number;
  statementCount: number;
  /** When it was borrowed, or last received an answer. */
  heardAtMs: number;
  /** An error after which the connection must not be used again. */
  failure: unknown;
}

/**
 * Sends the statements of many callers over few connections. The server answers them in order, each in its own
 * transaction, and neither end waits for the other in between.
 *
 * Sharing saves processor time, but it is slower on a slow disk: the server flushes the commits of several connections
 * together, and those of one connection one by one. So statements share a connection only while the process is busy or
 * the pool is empty. A statement that waits for a lock also delays those behind it. So callers must send only
 * statements that wait briefly for locks; a connection takes few statements while others are free, and no more once it
 * has fallen silent. A caller who waits for an exclusive connection goes before new shared statements.
 */
export class SharedConnections {
  readonly #source: ConnectionSource;
  /** The connections that accept further statements. */
  readonly #open = new Set<SharedConnection>();
  readonly #load: Pick<EventLoopLoad, 'isBusy'>;
  #usedCount = 0;
  #statementCount = 0;

  constructor(source: ConnectionSource, load: Pick<EventLoopLoad, 'isBusy'> = new EventLoopLoad()) {
    this.#source = source;
    this.#load = load;
  }

  /** How many statements wait behind others on their connection. */
  get waitingCount(): number {
    return this.#statementCount - this.#usedCount;
  }

  /** Sends no further statements over the connections that are lent now. */
  takeNoMore(): void {
    this.#open.clear();
  }

  /**
   * Lets the work send one statement, which must be its own transaction.
   *
   * @throws ShardUnavailableError `shard-unavailable` when no connection is available
   */
  async share<T>(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    if (this.#source.freeCount < 0) this.takeNoMore();
    const connection = this.#choose() ?? this.#take(shard);
    connection.statementCount++;
    this.#statementCount++;
    try {
      return await work(await this.#clientOf(connection, shard));
    } catch (error) {
      if (!this.#source.isSoundAfter(error)) {
        connection.failure = error;
        this.#open.delete(connection);
      }
      throw error;
    } finally {
      this.#statementCount--;
      connection.heardAtMs = performance.now();
      if (--connection.statementCount === 0) {
        this.#open.delete(connection);
        this.#usedCount--;
        connection.end();
      }
    }
  }

  /** The connection with the fewest statements; `undefined` when a further connection should be opened. */
  #choose(): SharedConnection | undefined {
    const nowMs = performance.now();
    let best: SharedConnection | undefined;
    for (const connection of this.#open) {
      if (nowMs - connection.heardAtMs > silenceMaxMs || nowMs - connection.takenAtMs > takingMaxMs) continue;
      if (best === undefined || connection.statementCount < best.statementCount) best = connection;
    }
    if (best === undefined || this.#source.freeCount <= 0) return best;
    if (!this.#load.isBusy(nowMs)) return undefined;
    return this.#open.size >= fewCount && best.statementCount < depthMax ? best : undefined;
  }

  async #clientOf({ client }: SharedConnection, shard: ShardIdentifier): Promise<pg.PoolClient> {
    try {
      return await client;
    } catch (error) {
      // The connection may have been requested for another shard of the same database.
      throw this.#source.unavailable(shard, error);
    }
  }

  #take(shard: ShardIdentifier): SharedConnection {
    const client = Promise.withResolvers<pg.PoolClient>();
    const ended = Promise.withResolvers<void>();
    const connection: SharedConnection = {
      client: client.promise,
      end: ended.resolve,
      takenAtMs: performance.now(),
      statementCount: 0,
      heardAtMs: performance.now(),
      failure: undefined,
    };
    this.#open.add(connection);
    this.#usedCount++;
    const lend = async (lent: pg.PoolClient): Promise<void> => {
      client.resolve(lent);
      await ended.promise;
      if (connection.failure !== undefined) throw connection.failure;
    };
    outsideRequests(() => void this.#source.use(shard, lend).catch(client.reject));
    return connection;
  }
}

/**
 * Names the prepared statements of a connection behind a pooler after their content, or sends them unprepared.
 *
 * Behind a pooler, another client may have prepared a different statement under the same name in the same server
 * process. A name made from the text can be missing there, but never stands for another statement. A pooler that does
 * not track prepared statements makes names go missing all the time, so behind such a pooler nothing is prepared.
 */
export function adaptStatementNames(client: pg.ClientBase, areNamed: boolean): void {
  const send = client.query.bind(client) as (query: unknown, ...rest: readonly unknown[]) => unknown;
  const sendAdapted = (query: unknown, ...rest: readonly unknown[]): unknown =>
    send(isNamed(query) ? renamed(query, areNamed) : query, ...rest);
  Object.assign(client, { query: sendAdapted });
}

interface NamedQuery {
  readonly name: string;
  readonly text: string;
}

function isNamed(query: unknown): query is NamedQuery {
  return typeof query === 'object' && query !== null && 'name' in query && typeof query.name === 'string';
}

/** Changes the name of a query, and keeps the fields that it inherits: see `queryOf`. */
function renamed(query: NamedQuery, areNamed: boolean): object {
  const name = areNamed ? contentName(query.text) : undefined;
  return Object.assign(Object.create(query) as object, query, { name });
}

const contentNames = new Map<string, string>();
const contentNamesMax = 2_000;

/** The name of a statement, derived from its text; it fits the 63 characters that PostgreSQL allows. */
function contentName(text: string): string {
  let name = contentNames.get(text);
  if (name === undefined) {
    name = `framework_${createHash('sha256').update(text).digest('hex').slice(0, 40)}`;
    if (contentNames.size >= contentNamesMax) contentNames.clear();
    contentNames.set(text, name);
  }
  return name;
}

/** How often the load is measured, in milliseconds. */
const intervalMs = 100;
/** The utilization from which the event loop counts as busy. */
const busyShare = 0.5;

/** Tells whether this process is busy at least half of the time. */
export class EventLoopLoad {
  #measuredAtMs = 0;
  #measured: EventLoopUtilization = performance.eventLoopUtilization();
  #isBusy = false;

  /** Whether the event loop was busy for at least half of the last 100 ms or so. */
  isBusy(nowMs: number): boolean {
    if (nowMs - this.#measuredAtMs < intervalMs) return this.#isBusy;
    const now = performance.eventLoopUtilization();
    this.#isBusy = performance.eventLoopUtilization(now, this.#measured).utilization >= busyShare;
    this.#measured = now;
    this.#measuredAtMs = nowMs;
    return this.#isBusy;
  }
}
