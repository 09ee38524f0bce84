import type { DatabaseConfig } from '@framework/core/adapter';
import type pg from 'pg';

import type { PostgresWarning } from './postgres-options.js';

/** How long to wait after a failed attempt to open a connection, in milliseconds. */
const retryDelayMs = 5_000;

/** An undocumented method of the driver's pool. It opens a connection even while others are idle. */
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
 * Keeps a minimum number of connections open, so that requests do not have to wait for new ones. It opens them in the
 * background and leaves the open ones to requests.
 *
 * While the server refuses connections, it tries one at a time.
 */
export class WarmConnections {
  readonly #pool: OpeningPool;
  readonly #countMin: number;
  #openingCount = 0;
  #hasFailed = false;
  #retry: NodeJS.Timeout | undefined;

  /** @param countMin how many connections to keep open; must not exceed the pool's maximum */
  constructor(pool: pg.Pool, countMin: number) {
    this.#pool = pool as unknown as OpeningPool;
    this.#countMin = countMin;
  }

  /** Opens the missing connections, and tries again later if that fails. */
  fill(): void {
    const { ending, totalCount } = this.#pool;
    if (ending || this.#openingCount > 0) return;
    const missingCount = Math.max(0, this.#countMin - totalCount);
    const count = this.#hasFailed ? Math.min(1, missingCount) : missingCount;
    this.#openingCount = count;
    for (let index = 0; index < count; index++)
      this.#pool.newClient({ callback: (error, _client, release) => this.#opened(error, release) });
  }

  /** Stops opening connections. */
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

/** Its stack trace shows where a connection was borrowed. */
class BorrowedHereError extends Error {
  override readonly name = 'BorrowedHereError';
}

/**
 * Warns when a connection is not returned in time, with the stack trace of its borrower.
 *
 * @returns a function that stops the timer
 */
export function watchLoan(
  { path }: DatabaseConfig,
  thresholdMs: number,
  warn: (warning: PostgresWarning) => void,
): () => void {
  const borrowed = new BorrowedHereError('The connection was borrowed here');
  const timer = setTimeout(() => {
    const message = `a connection was not returned within ${thresholdMs} ms`;
    warn({ kind: 'connection-leak', database: path, message, stack: borrowed.stack });
  }, thresholdMs);
  timer.unref();
  return () => clearTimeout(timer);
}
