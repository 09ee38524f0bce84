import { type PgColumn, type PgTable, bigint, text, timestamp, uuid } from 'drizzle-orm/pg-core';

/** The columns that the table of every entity has; spread them into `pgTable`. */
export function entityColumns() {
  return {
    id: uuid('id').primaryKey(),
    state: text('state').notNull(),
    version: bigint('version', { mode: 'number' }).notNull(),
  };
}

/** The columns that the table of every model has; spread them into `pgTable`. */
export function modelColumns() {
  return {
    ...entityColumns(),
    createdDate: timestamp('created_date', { withTimezone: true }).notNull(),
    updatedDate: timestamp('updated_date', { withTimezone: true }).notNull(),
  };
}

/** A table that a repository can store models in: see `entityColumns()` and `modelColumns()`. */
export type ModelTable = PgTable & {
  readonly id: PgColumn;
  readonly state: PgColumn;
  readonly version: PgColumn;
};
