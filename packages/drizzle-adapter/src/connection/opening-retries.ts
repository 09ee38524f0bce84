import type { DatabaseNotReadyError } from '@framework/core';
import { TablesInUseError } from '../migration/migrate-database.js';

/** How soon a database is tried again that may be there at any moment. */
const retryMs = 500;
/** How much longer, as a factor, it takes each time while somebody has to correct something; and how long at most. */
const retryFactor = 2;
const retryMaxMs = 5_000;
/** How many times as long as a migration that failed took, until it is tried again: it may have held tables. */
const migrationRestFactor = 10;
const migrationRestMaxMs = 600_000;

/** Says when a database is tried again that could not be opened. */
export class OpeningRetries {
  #waitMs = retryMs;

  /**
   * How long to wait, in milliseconds.
   *
   * @param reason is what `error` means
   * @param tookMs is how long the try took
   */
  delayMsAfter(error: unknown, reason: DatabaseNotReadyError, tookMs: number): number {
    this.#waitMs = reason.mayPass ? retryMs : Math.min(this.#waitMs * retryFactor, retryMaxMs);
    const heldTables = reason.kind === 'migration-failed' || error instanceof TablesInUseError;
    if (!heldTables) return this.#waitMs;
    return Math.max(this.#waitMs, Math.min(tookMs * migrationRestFactor, migrationRestMaxMs));
  }
}
