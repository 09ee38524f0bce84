import { setTimeout as delay } from 'node:timers/promises';
import { FrameworkException, type LogPartitions } from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';

/** How many months ahead partitions are created. */
export const partitionMonthsAhead = 3;

/** How often a change of the log's partitions is tried at once: each time it waits for 100 ms for a lock. */
const triesMax = 5;
const firstWaitMs = 200;
/** Its locks do not block commits. */
const createTimeoutMs = 5_000;
/** Commits wait while it holds its locks. */
const dropTimeoutMs = 300;

/** Creates and drops the partitions of the log of one PostgreSQL database; holds up no commit for longer than 300 ms. */
export class PgLogPartitions implements LogPartitions {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async create(): Promise<void> {
    await this.#change('select eventlog.create_partitions($1)', partitionMonthsAhead, createTimeoutMs);
  }

  async drop(olderThanMs: number): Promise<readonly string[]> {
    const { rows } = await this.#manager.query<{ name: string }>({
      text: `select child.relname as name
             from pg_inherits join pg_class child on child.oid = inhrelid
             where inhparent = 'eventlog.events'::regclass and child.relname ~ '^events_\\d{4}_\\d{2}$'
               and (to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month') at time zone 'UTC'
                   < clock_timestamp() - $1::double precision * interval '1 millisecond'
             order by child.relname`,
      values: [olderThanMs],
    });
    const dropped: string[] = [];
    for (const { name } of rows) {
      const [row] = await this.#change('select eventlog.drop_partition($1) as changed', name, dropTimeoutMs);
      if (row?.changed === true) dropped.push(name);
    }
    return dropped;
  }

  /** Changes the partitions when no lock is in the way: a statement that waits for a lock blocks all that come after it. */
  async #change(
    text: string,
    value: unknown,
    timeoutMs: number,
  ): Promise<readonly { readonly changed: unknown }[]> {
    for (let tryCount = 1; ; tryCount++) {
      try {
        return await this.#manager.inTransaction(async () => {
          await this.#manager.query({ text: `set local statement_timeout = ${timeoutMs}` });
          return (await this.#manager.query<{ changed: unknown }>({ text, values: [value] })).rows;
        });
      } catch (error) {
        if (tryCount === triesMax || !(FrameworkException.is(error) && error.retryable)) throw error;
        await delay(firstWaitMs * 2 ** (tryCount - 1));
      }
    }
  }
}
