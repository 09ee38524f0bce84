import type { DatabaseConfig } from '@framework/core';
import type { PostgresWarning } from './postgres-options.js';

/** Where a connection was borrowed. */
class BorrowedHere extends Error {
  override readonly name = 'BorrowedHere';
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
  const borrowed = new BorrowedHere('a connection was borrowed here');
  const timer = setTimeout(() => {
    const message = `a connection was not given back within ${thresholdMs} ms`;
    warn({ kind: 'connection-leak', database: path, message, stack: borrowed.stack });
  }, thresholdMs);
  timer.unref();
  return () => clearTimeout(timer);
}
