import { InvalidCursorError, InvalidIdError, type ModelClass } from '@framework/core';
import {
  type AnyEntity,
  type ModelRead,
  type ModelSource,
  type PagePlace,
  type TransactionManager,
  isStorableText,
} from '@framework/core/adapter';
import { type SQL, and, count, getTableColumns, ne, sql } from 'drizzle-orm';
import { type PgColumn, QueryBuilder } from 'drizzle-orm/pg-core';
import type pg from 'pg';

import type { Connection } from '../connection/connection.js';
import { queryOf, sqlStateOf } from '../connection/storage-error.js';
import type { ModelTable } from '../model-columns.js';
import { ColumnOrder, idOrder } from '../column/column-order.js';
import { isEnum } from '../column/column-type.js';
import { RowDecoder } from '../column/row-decoder.js';

const deletedState = 'DELETED';
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The SQLSTATEs of a text that is no value of its type, or is out of the type's range. */
const textRefusals = new Set(['22P02', '22003', '22007', '22008']);

let readerCount = 0;

/** Reads the rows of one table that are not deleted. */
export class TableReader<T extends ModelTable> {
  readonly table: T;
  readonly #decoder: RowDecoder;
  readonly #present: SQL | undefined;
  readonly #byId: Omit<pg.QueryArrayConfig, 'values'>;
  readonly #bySeveralIds: Omit<pg.QueryArrayConfig, 'values'>;
  readonly #idConstants: readonly unknown[];
  readonly #idIsUuid: boolean;
  readonly #idOrder: SQL;

  constructor(table: T) {
    this.table = table;
    this.#decoder = new RowDecoder(table);
    this.#present = presentCondition(table);
    this.#idIsUuid = table.id.getSQLType() === 'uuid';
    this.#idOrder = idOrder(table);
    const byId = preparedSelect(table, and(sql`${table.id} = ${sql.placeholder('id')}`, this.#present));
    this.#idConstants = byId.constants;
    this.#byId = byId.query;
    this.#bySeveralIds = preparedSelect(
      table,
      and(sql`${table.id} = any(${sql.placeholder('ids')})`, this.#present),
    ).query;
  }

  /**
   * Reads the row with this id with a prepared statement. Skips a row whose id the database merely considers equal,
   * such as one in another case.
   */
  async byId(manager: Connection, id: string): Promise<T['$inferSelect'] | undefined> {
    const { rows } = await manager.query<unknown[]>(queryOf(this.#byId, [id, ...this.#idConstants]));
    const values = rows[0];
    if (values === undefined) return undefined;
    const row: T['$inferSelect'] = this.#decoder.decode(values);
    return rowId(row) === id ? row : undefined;
  }

  /**
   * Reads the rows of several ids with a prepared statement, and returns them by id. Each call of a returned function decodes a
   * fresh row.
   */
  async bySeveralIds(
    manager: Connection,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, () => T['$inferSelect']>> {
    const { rows } = await manager.query<unknown[]>(queryOf(this.#bySeveralIds, [ids, ...this.#idConstants]));
    return new Map(
      rows.map((values) => {
        let first: T['$inferSelect'] | undefined = this.#decoder.decode(values);
        const decode = (): T['$inferSelect'] => {
          const row = first ?? this.#decoder.decode(values);
          first = undefined;
          return row;
        };
        return [rowId(first), decode];
      }),
    );
  }

  /**
   * Returns an id as the database writes it: UUIDs in lower case.
   *
   * @throws InvalidIdError `invalid-id` when no row of the table can have this id
   */
  idText(id: string): string {
    if (!this.#mayBeId(id))
      throw new InvalidIdError(id, this.#idIsUuid ? 'a UUID' : 'a text that a database can store');
    return this.#idIsUuid ? id.toLowerCase() : id;
  }

  /** Whether a row can have this id. A lone surrogate would be sent as another character, and match the row of another id. */
  #mayBeId(id: string): boolean {
    return this.#idIsUuid ? uuid.test(id) : isStorableText(id);
  }

  /**
   * The order of a list of pages.
   *
   * @throws InvariantViolationError `invariant-violation` when the table cannot be ordered by that column
   */
  order(request: ConstructorParameters<typeof ColumnOrder>[2]): ColumnOrder {
    return new ColumnOrder(this.table, this.#idOrder, request);
  }

  /**
   * Reads the first matching rows after a position.
   *
   * @throws InvalidCursorError `invalid-cursor` when no value of the ordered column can have the position's text
   */
  async page(
    manager: Connection,
    { where, limit, after, order }: PageQuery,
  ): Promise<readonly PlacedRow<T['$inferSelect']>[]> {
    const query = new QueryBuilder()
      .select(qualifiedColumns(this.table))
      .from<ModelTable>(this.table)
      .where(and(where, after && order.beyond(after), this.#present))
      .orderBy(...order.orderBy)
      .limit(limit);
    const rows = await rowsOf(manager, query).catch((error: unknown) => {
      const isRefused = after !== undefined && textRefusals.has(sqlStateOf(error) ?? '');
      throw isRefused ? new InvalidCursorError(order.cursorOf(after)) : error;
    });
    return rows.map((values) => ({ row: this.#decoder.decode(values), place: order.placeOfRow(values) }));
  }

  /** Counts the matching rows. */
  async count(manager: Connection, condition: SQL | undefined): Promise<number> {
    const query = new QueryBuilder()
      .select({ count: count() })
      .from<ModelTable>(this.table)
      .where(and(condition, this.#present));
    const [row] = await rowsOf(manager, query);
    return Number(row?.[0] ?? 0);
  }
}

/** Which rows of a table to read, at most how many, and in which order. */
interface PageQuery {
  readonly where: SQL | undefined;
  readonly limit: number;
  readonly after: PagePlace | undefined;
  readonly order: ColumnOrder;
}

/** A row, and its position in the order of a page. */
export interface PlacedRow<Row> {
  readonly row: Row;
  readonly place: PagePlace;
}

/** A select whose first parameter changes with each use, and the constants that follow it. */
function preparedSelect(
  table: ModelTable,
  condition: SQL | undefined,
): { readonly query: Omit<pg.QueryArrayConfig, 'values'>; readonly constants: readonly unknown[] } {
  const { sql: text, params } = new QueryBuilder()
    .select(qualifiedColumns(table))
    .from(table)
    .where(condition)
    .toSQL();
  const name = `framework_read_${readerCount++}`;
  return { query: { name, text, rowMode: 'array', types: columnTypes }, constants: params.slice(1) };
}

/** All columns with the name of the table, which PostgreSQL then repeats in its message about a column that does not exist. */
function qualifiedColumns(table: ModelTable): Record<string, SQL> {
  const columns = Object.entries(getTableColumns(table) as Record<string, PgColumn>);
  return Object.fromEntries(columns.map(([key, { name }]) => [key, sql`${table}.${sql.identifier(name)}`]));
}

/** Excludes deleted rows. An enum without DELETED needs no condition, and would refuse the comparison. */
function presentCondition({ state }: ModelTable): SQL | undefined {
  const canBeDeleted = !isEnum(state) || state.enumValues.includes(deletedState);
  return canBeDeleted ? ne(state, deletedState) : undefined;
}

function rowId(row: object): string {
  return String((row as { readonly id: unknown }).id);
}

/** Bypasses Drizzle's session, which would wrap errors and parse JSON twice. */
async function rowsOf(
  manager: Connection,
  query: { toSQL(): { readonly sql: string; readonly params: unknown[] } },
): Promise<readonly unknown[][]> {
  const { sql: text, params: values } = query.toSQL();
  const { rows } = await manager.query<unknown[]>({ text, values, rowMode: 'array', types: columnTypes });
  return rows;
}

/** Leaves every value as the text of the server, which the types of the columns read. */
const columnTypes: pg.CustomTypesConfig = { getTypeParser: () => asText };

function asText(value: string): string {
  return value;
}

type TimedConnection = Connection & Pick<TransactionManager, 'timeline'>;

/** Reads the models of one table on one shard by id. */
export class PgModelSource<M extends AnyEntity, T extends ModelTable> implements ModelSource<M> {
  readonly model: ModelClass<M>;
  readonly table: T;
  readonly #manager: TimedConnection;
  readonly #reader: TableReader<T>;
  readonly #toModel: (row: T['$inferSelect'], read: ModelRead) => M;

  constructor(
    model: ModelClass<M>,
    manager: TimedConnection,
    reader: TableReader<T>,
    toModel: (row: T['$inferSelect'], read: ModelRead) => M,
  ) {
    this.model = model;
    this.table = reader.table;
    this.#manager = manager;
    this.#reader = reader;
    this.#toModel = toModel;
  }

  async readOne(id: string): Promise<M | undefined> {
    const read = readBy(this.#manager);
    const row = await this.#reader.byId(this.#manager, id);
    return row === undefined ? undefined : this.#toModel(row, read);
  }

  async readSeveral(ids: readonly string[]): Promise<ReadonlyMap<string, () => M>> {
    const read = readBy(this.#manager);
    const rows = await this.#reader.bySeveralIds(this.#manager, ids);
    return new Map([...rows].map(([id, decode]) => [id, () => this.#toModel(decode(), read)]));
  }
}

/** A read that begins now. */
export function readBy(manager: TimedConnection): ModelRead {
  return { manager, timeline: manager.timeline };
}
