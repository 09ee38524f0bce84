import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { ConnectionGuard } from '../connection/connection-guard.js';
import type { PostgresWarning } from '../connection/postgres-options.js';

const triesMax = 50;
const retryMs = 100;

/** SQLSTATEs of a database that is not migrated yet: no such schema, table, column or function. */
const unmigratedStates = new Set(['3F000', '42P01', '42703', '42883']);
/** SQLSTATEs of a lock that was not had in time, and of what another session has done at once, which this one cannot see yet. */
const passingStates = new Set(['55P03', '40001']);

/**
 * Has a new epoch of the log begun when the database is on another server than before: restored, copied or moved.
 *
 * Transaction numbers of different servers do not compare. So nothing is written or read on a server that this process
 * does not know yet before the log knows it.
 */
export class EpochGuard implements ConnectionGuard {
  readonly #path: string;
  readonly #warn: (warning: PostgresWarning) => void;

  /**
   * @param path where the database stands in the configuration
   * @param warn called with an epoch that was begun
   */
  constructor(path: string, warn: (warning: PostgresWarning) => void) {
    this.#path = path;
    this.#warn = warn;
  }

  /**
   * To be called with each new connection, outside of a transaction, before it is used.
   *
   * @throws errors of `pg` when the epoch cannot be begun; then the connection must not be used
   */
  async ensure(client: pg.ClientBase): Promise<void> {
    for (let tryCount = 1; ; tryCount++) {
      try {
        const { rows } = await client.query<{ epoch: number; begun: boolean }>(
          'select epoch, begun from eventlog.ensure_epoch()',
        );
        if (rows[0]?.begun === true) this.#tell(rows[0].epoch);
        return;
      } catch (error) {
        const state = error instanceof pg.DatabaseError ? error.code : undefined;
        // Its migrations come with an epoch.
        if (unmigratedStates.has(state ?? '')) return;
        if (!passingStates.has(state ?? '') || tryCount === triesMax) throw error;
        await delay(retryMs);
      }
    }
  }

  #tell(epoch: number): void {
    const message = `the database is on another server than before, restored, copied or moved: epoch ${epoch} of its log begins`;
    this.#warn({ kind: 'new-epoch', database: this.#path, message });
  }
}
