import type { DatabaseConfig } from '@framework/core/adapter';
import type pg from 'pg';

import type { PostgresWarning } from './postgres-options.js';

/** How long it takes until a connection is tried again that could not be opened, in milliseconds. */
const retryDelayMs = 5_000;

/** What the driver's pool has beside its documented methods: it opens a connection although others are idle. */
interface OpeningPool {
  readonly ending: boolean;
  readonly totalCount: number;
  newClient(pending: {
    readonly callback: (
      error: Error | undefined,
      client: pg.PoolClient | undefined,
      release: () => void,
    ) => void;
  }): void;
}

/**
 * Keeps connections of a pool open for which nobody has asked yet, in the background: those that are open are left to the
 * requests meanwhile.
 *
 * While the server gives none, one at a time is tried.
 */
export class WarmConnections {
  readonly #pool: OpeningPool;
  readonly #countMin: number;
  #openingCount = 0;
  #hasFailed = false;
  #retry: NodeJS.Timeout | undefined;

  /** @param countMin is how many are to be open; the pool must allow as many */
  constructor(pool: pg.Pool, countMin: number) {
    this.#pool = pool as unknown as OpeningPool;
    this.#countMin = countMin;
  }

  /** Opens what is missing, and tries again later when that fails. */
  fill(): void {
    const { ending, totalCount } = this.#pool;
    if (ending || this.#openingCount > 0) return;
    const missingCount = Math.max(0, this.#countMin - totalCount);
    const count = this.#hasFailed ? Math.min(1, missingCount) : missingCount;
    this.#openingCount = count;
    for (let index = 0; index < count; index++)
      this.#pool.newClient({ callback: (error, _client, release) => this.#opened(error, release) });
  }

  /** Tries no more. */
  close(): void {
    clearTimeout(this.#retry);
  }

  #opened(error: Error | undefined, release: () => void): void {
    this.#openingCount--;
    this.#hasFailed = error !== undefined;
    release();
    clearTimeout(this.#retry);
    if (error === undefined) this.fill();
    else this.#retry = setTimeout(() => this.fill(), retryDelayMs).unref();
  }
}

/** Where a connection was borrowed. */
class BorrowedHereError extends Error {
  override readonly name = 'BorrowedHereError';
}

/**
 * Warns when a connection is not returned in time, with the stack trace of its borrower.
 *
 * @returns what ends the watch
 */
export function watchLoan(
  { path }: DatabaseConfig,
  thresholdMs: number,
  warn: (warning: PostgresWarning) => void,
): () => void {
  const borrowed = new BorrowedHereError('a connection was borrowed here');
  const timer = setTimeout(() => {
    const message = `a connection was not given back within ${thresholdMs} ms`;
    warn({ kind: 'connection-leak', database: path, message, stack: borrowed.stack });
  }, thresholdMs);
  timer.unref();
  return () => clearTimeout(timer);
}
