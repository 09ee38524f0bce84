import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

const triesMax = 50;
const retryMs = 100;

/** SQLSTATEs of a database that is not migrated yet: no such schema, table, column or function. */
const unmigratedStates = new Set(['3F000', '42P01', '42703', '42883']);
const lockNotAvailable = '55P03';

/**
 * Has a new epoch of the log begun when the database is on another server than before: restored, copied or moved.
 *
 * Transaction numbers of different servers do not compare. So nothing is written or read on a server that this process
 * does not know yet before the log knows it.
 */
export class EpochGuard {
  readonly #path: string;
  #known: string | undefined;

  /** @param path where the database stands in the configuration */
  constructor(path: string) {
    this.#path = path;
  }

  /**
   * To be called with each new connection, outside of a transaction, before it is used.
   *
   * @param server tells servers apart; `undefined` when that is not known, so that the database is asked
   * @throws errors of `pg` when the epoch cannot be begun; then the connection must not be used
   */
  async ensure(client: pg.ClientBase, server: string | undefined): Promise<void> {
    if (server !== undefined && server === this.#known) return;
    for (let tryCount = 1; ; tryCount++) {
      try {
        const { rows } = await client.query<{ epoch: number; begun: boolean }>(
          'select epoch, begun from eventlog.ensure_epoch()',
        );
        if (rows[0]?.begun === true) this.#warn(rows[0].epoch);
        this.#known = server;
        return;
      } catch (error) {
        const state = error instanceof pg.DatabaseError ? error.code : undefined;
        // Its migrations come with an epoch.
        if (unmigratedStates.has(state ?? '')) return;
        if (state !== lockNotAvailable || tryCount === triesMax) throw error;
        await delay(retryMs);
      }
    }
  }

  /** Node prints it, with the process's id. */
  #warn(epoch: number): void {
    process.emitWarning(
      `${this.#path}: the database is on another server than before, restored, copied or moved: epoch ${epoch} of its log begins`,
      { type: 'PostgresWarning', code: 'new-epoch' },
    );
  }
}
