import type { PgColumn, PgTable } from 'drizzle-orm/pg-core';

/** A table that a repository can store models in: see `entityColumns()` and `modelColumns()`. */
export type ModelTable = PgTable & {
  readonly id: PgColumn;
  readonly state: PgColumn;
  readonly version: PgColumn;
};
