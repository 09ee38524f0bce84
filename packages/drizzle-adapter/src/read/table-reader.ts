import { FrameworkException } from '@framework/core';
import { type SQL, and, asc, count, gt, is, ne, sql } from 'drizzle-orm';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import { PgEnumColumn, PgUUID, QueryBuilder } from 'drizzle-orm/pg-core';
import type pg from 'pg';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import type { ModelTable } from '../model-table.js';
import { RowDecoder, drizzleTypes } from './row-decoder.js';

const deletedState = 'DELETED';

let readerCount = 0;

/** Reads rows of one table that are not deleted. */
export class TableReader<T extends ModelTable> {
  readonly #table: T;
  readonly #decoder: RowDecoder;
  readonly #present: SQL | undefined;
  readonly #byId: Omit<pg.QueryArrayConfig, 'values'>;
  readonly #idConstants: readonly unknown[];
  readonly #idOrder: SQL;

  constructor(table: T) {
    this.#table = table;
    this.#decoder = new RowDecoder(table);
    this.#present = presentCondition(table);
    // PostgreSQL compares UUIDs by their bytes; texts must not depend on the database's locale.
    this.#idOrder = is(table.id, PgUUID) ? sql`${table.id}` : sql`${table.id} collate "C"`;
    const byId = new QueryBuilder()
      .select()
      .from<ModelTable>(table)
      .where(and(sql`${table.id} = ${sql.placeholder('id')}`, this.#present))
      .toSQL();
    this.#idConstants = byId.params.slice(1);
    this.#byId = {
      name: `framework_read_${readerCount++}`,
      text: byId.sql,
      rowMode: 'array',
      types: drizzleTypes,
    };
  }

  /** Reads the row of an id by a prepared statement. */
  async byId(manager: PgTransactionManager, id: string): Promise<T['$inferSelect'] | undefined> {
    const { rows } = await manager.query<unknown[]>({ ...this.#byId, values: [id, ...this.#idConstants] });
    const values = rows[0];
    return values === undefined ? undefined : this.#decoder.decode(values);
  }

  /** Reads the rows of several ids, in no order. */
  byIds(db: NodePgDatabase, ids: readonly string[]): Promise<T['$inferSelect'][]> {
    return this.#select(db, sql`${this.#table.id} = any(${sql.param([...ids])})`);
  }

  /** Reads the first rows that match, in the order of ids. */
  page(
    db: NodePgDatabase,
    {
      where,
      limit,
      after,
    }: { readonly where?: SQL | undefined; readonly limit: number; readonly after?: string | undefined },
  ): Promise<T['$inferSelect'][]> {
    const beyond = after === undefined ? undefined : gt(this.#idOrder, after);
    return this.#select(db, and(where, beyond), limit);
  }

  /** Counts the rows that match. */
  async count(db: NodePgDatabase, condition: SQL | undefined): Promise<number> {
    const rows = await unwrapped(
      db.select({ count: count() }).from<ModelTable>(this.#table).where(and(condition, this.#present)),
    );
    return rows[0]?.count ?? 0;
  }

  /** Merges rows of several databases in the order in which each one gives them. */
  inOrder(rows: readonly T['$inferSelect'][]): T['$inferSelect'][] {
    return rows
      .map((row) => ({ row, key: Buffer.from(String((row as { readonly id: unknown }).id)) }))
      .sort((one, other) => Buffer.compare(one.key, other.key))
      .map(({ row }) => row);
  }

  async #select(
    db: NodePgDatabase,
    condition: SQL | undefined,
    limit?: number,
  ): Promise<T['$inferSelect'][]> {
    const query = db
      .select()
      .from<ModelTable>(this.#table)
      .where(and(condition, this.#present))
      .orderBy(asc(this.#idOrder))
      .$dynamic();
    return (await unwrapped(limit === undefined ? query : query.limit(limit))) as T['$inferSelect'][];
  }
}

/** Leaves out what is deleted; a state of an enum without DELETED cannot be. */
function presentCondition({ state }: ModelTable): SQL | undefined {
  const canBeDeleted = !is(state, PgEnumColumn) || state.enumValues.includes(deletedState);
  return canBeDeleted ? ne(state, deletedState) : undefined;
}

/** Drizzle wraps what its client throws, with the statement and its values in the message. */
async function unwrapped<R>(query: PromiseLike<R>): Promise<R> {
  try {
    return await query;
  } catch (error) {
    throw FrameworkException.find(error) ?? error;
  }
}
