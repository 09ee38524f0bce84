import { ShardedId } from '@framework/core';
import { PgRepository, modelColumns } from '@framework/drizzle-adapter';
import { integer, pgTable } from 'drizzle-orm/pg-core';
import { Counter } from './counter.ts';

export const counters = pgTable('counters', { ...modelColumns(), value: integer('value').notNull() });

/** Maps rows to counters, and reads them on the shard that the id names. */
export class CounterRepository extends PgRepository<Counter, typeof counters> {
  protected toModel(row: typeof counters.$inferSelect): Counter {
    return new Counter({ ...row, id: ShardedId.of(Counter, row.id), state: 'OPEN' });
  }

  protected toRow(counter: Counter): typeof counters.$inferInsert {
    return { ...counter, id: counter.id.value };
  }
}
