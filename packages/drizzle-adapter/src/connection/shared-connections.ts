import type { ShardIdentifier } from '@framework/core';
import { outsideRequests } from '@framework/core/adapter';
import { createHash } from 'node:crypto';
import type pg from 'pg';

import { EventLoopLoad } from './silence-watch.js';

/** How many connections a busy process shares while each of them has little to do. */
const fewCount = 4;
/** How many statements are on their way over one of them before a further connection is taken. */
const depthMax = 4;
/** How long a connection takes new statements: it must be given back now and then, because its life in the pool is bounded. */
const takingMaxMs = 10_000;
/** How long a connection may be silent before it takes nothing new, in milliseconds. */
const silenceMaxMs = 50;

/** The pool from which the connections come. */
export interface ConnectionSource {
  /** How many connections the pool can lend at once; below 0, how many callers wait for one. */
  readonly freeCount: number;
  /** Lends a connection for as long as the work runs, and destroys it when an error of the work means that. */
  use(shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<void>): Promise<void>;
  /** What a caller gets for whom no connection could be had. */
  unavailable(shard: ShardIdentifier, error: unknown): Error;
  /** Whether a connection is as good as before when a statement on it has failed so. */
  isSoundAfter(error: unknown): boolean;
}

/** A connection that takes statements without waiting for the answers to those before. */
interface SharedConnection {
  readonly client: Promise<pg.PoolClient>;
  /** Gives the connection back. */
  readonly end: () => void;
  readonly takenAtMs: number;
  statementCount: number;
  /** When it was taken, or last answered something. */
  heardAtMs: number;
  /** After which it must not be used again. */
  failure: unknown;
}

/**
 * Sends statements of many callers over few connections: the server answers them in order, each in a transaction of its
 * own, and neither side waits for the other in between.
 *
 * That saves the process time, and costs it where the disk is slow: the server flushes the commits of several connections
 * together, but not those of one. So statements share connections only when the process is busy, or the pool has none left.
 * Statements behind one that waits for a lock wait, too. So only statements that wait for locks for a moment share a
 * connection; it takes few at a time while others are free, and none after it has fallen silent. Whoever waits for a
 * connection of their own comes before new statements.
 */
export class SharedConnections {
  readonly #source: ConnectionSource;
  /** Those that take further statements. */
  readonly #open = new Set<SharedConnection>();
  readonly #load: Pick<EventLoopLoad, 'isBusy'>;
  #usedCount = 0;
  #statementCount = 0;

  constructor(source: ConnectionSource, load: Pick<EventLoopLoad, 'isBusy'> = new EventLoopLoad()) {
    this.#source = source;
    this.#load = load;
  }

  /** How many statements wait for those before them. */
  get waitingCount(): number {
    return this.#statementCount - this.#usedCount;
  }

  /** Lends none of the connections any more that are lent now. */
  takeNoMore(): void {
    this.#open.clear();
  }

  /**
   * Lets the work send one statement, which must be a transaction of its own.
   *
   * @throws ShardUnavailableError `shard-unavailable` when no connection can be had
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

  /** The one with the fewest statements, unless another connection should be taken. */
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
      // Who asked for the connection may have done so for another shard of the database.
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
 * Has a connection behind a pooler call prepared statements by what they are, or not prepare them at all.
 *
 * There, other clients may have given the same server process another statement under the same name. A name that stands
 * for one text only can be missing, but never mean something else. A pooler that keeps no track of names lets them be
 * missing all the time: then statements are sent whole.
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

/** Its fields may be inherited: see `queryOf`. */
function renamed(query: NamedQuery, areNamed: boolean): object {
  const name = areNamed ? contentName(query.text) : undefined;
  return Object.assign(Object.create(query) as object, query, { name });
}

const contentNames = new Map<string, string>();
const contentNamesMax = 2_000;

/** Within the 63 characters that a name may have. */
function contentName(text: string): string {
  let name = contentNames.get(text);
  if (name === undefined) {
    name = `framework_${createHash('sha256').update(text).digest('hex').slice(0, 40)}`;
    if (contentNames.size >= contentNamesMax) contentNames.clear();
    contentNames.set(text, name);
  }
  return name;
}
