import type { LogPartitions } from '@framework/core';
import { sql } from 'drizzle-orm';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';

/** How many months ahead partitions are created. */
export const partitionMonthsAhead = 3;

/** Creates and drops the partitions of the log of one PostgreSQL database. */
export class PgLogPartitions implements LogPartitions {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async create(): Promise<void> {
    await this.#manager.query({
      text: 'select eventlog.create_partitions($1)',
      values: [partitionMonthsAhead],
    });
  }

  async drop(olderThanMs: number): Promise<readonly string[]> {
    const { rows } = await this.#manager.query<{ name: string }>({
      text: `select child.relname as name
             from pg_inherits join pg_class child on child.oid = inhrelid
             where inhparent = 'eventlog.events'::regclass and child.relname ~ '^events_\\d{4}_\\d{2}$'
               and to_timestamp(right(child.relname, 7), 'YYYY_MM') + interval '1 month'
                   < clock_timestamp() - $1::double precision * interval '1 millisecond'
             order by child.relname`,
      values: [olderThanMs],
    });
    const dropped: string[] = [];
    for (const { name } of rows) if (await this.#dropIfPassed(name)) dropped.push(name);
    return dropped;
  }

  async #dropIfPassed(name: string): Promise<boolean> {
    const partition = sql`${sql.identifier('eventlog')}.${sql.identifier(name)}`;
    return this.#manager.inTransaction(async () => {
      const { rows } = await this.#manager.db.execute(sql`
        select 1 from ${partition} e join eventlog.cursors c using (slot)
        where e.event_type is not null and not pg_visible_in_snapshot(e.xid, c.snapshot) limit 1`);
      if (rows.length > 0) return false;
      await this.#manager.db.execute(sql`drop table ${partition}`);
      return true;
    });
  }
}
