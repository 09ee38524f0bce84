import { InvalidCursorError, InvariantViolationError } from '@framework/core';
import { PageOrder, type PagePlace, type ValueKind } from '@framework/core/adapter';
import { type SQL, asc, desc, gt, lt, sql } from 'drizzle-orm';
import { type PgColumn, getTableConfig } from 'drizzle-orm/pg-core';

import type { ModelTable } from '../model-columns.js';
import { type TableColumn, baseType, isEnum, tableColumns } from './column-type.js';

/**
 * The order of the rows on pages, by a column and then the id, or by the id alone. It applies both in SQL and when rows of several
 * databases are merged.
 */
export class ColumnOrder {
  readonly orderBy: readonly SQL[];
  readonly #order: PageOrder;
  readonly #kind: ValueKind;
  /** The position of the column in the table; `undefined` in the order of ids. */
  readonly #index: number | undefined;
  readonly #idIndex: number;
  /** What is compared: the column and the id, or the id alone. */
  readonly #key: SQL;

  /**
   * @param id the id as the database orders it
   * @throws InvariantViolationError `invariant-violation` when the table has no such column, or cannot be ordered by it
   */
  constructor(table: ModelTable, id: SQL, request: ConstructorParameters<typeof PageOrder>[0]) {
    const columns = tableColumns(table);
    const order = new PageOrder(request);
    const direction = order.isDescending ? desc : asc;
    this.#order = order;
    this.#idIndex = columns.findIndex(({ key }) => key === 'id');
    if (order.field === undefined) {
      this.#kind = 'text';
      this.#key = id;
      this.orderBy = [direction(id)];
    } else {
      const index = columns.findIndex(({ key }) => key === order.field);
      this.#kind = kindOf(table, order.field, columns[index]);
      this.#index = index;
      const value = comparable(columns[index]?.column);
      this.#key = sql`(${value}, ${id})`;
      this.orderBy = [direction(value), direction(id)];
    }
  }

  /**
   * The position after which a page begins. Only the database can say whether a value of the column's type can have its text.
   *
   * @param idText converts an id to the form in which the database writes it; throws if it is not an id
   * @throws InvalidCursorError `invalid-cursor` when the cursor does not belong to this order
   */
  placeOf(cursor: string, idText: (id: string) => string): PagePlace {
    const { value, id } = this.#order.placeOf(cursor);
    try {
      return { value, id: idText(id) };
    } catch {
      throw new InvalidCursorError(cursor);
    }
  }

  /** The condition for the rows after a position. */
  beyond({ value, id }: PagePlace): SQL {
    const place = this.#order.field === undefined ? sql`${id}` : sql`(${value}, ${id})`;
    return this.#order.isDescending ? lt(this.#key, place) : gt(this.#key, place);
  }

  /** The position of a row, from the values that the database sent. */
  placeOfRow(values: readonly unknown[]): PagePlace {
    return {
      value: this.#index === undefined ? '' : String(values[this.#index]),
      id: String(values[this.#idIndex]),
    };
  }

  cursorOf(place: PagePlace): string {
    return this.#order.cursorOf(place);
  }

  /** Merges rows of several databases, each in the order in which its database returns them. */
  merged<Row extends { readonly place: PagePlace }>(rows: readonly (readonly Row[])[]): readonly Row[] {
    const [first = [], ...others] = rows;
    if (others.length === 0) return first;
    return rows.flat().sort((one, other) => this.#order.compare(one.place, other.place, this.#kind));
  }
}

/**
 * The SQL expression that orders rows by their ids: UUIDs by their bytes, texts in an order that does not depend on the database's
 * locale.
 *
 * @throws InvariantViolationError `invariant-violation` when the database orders ids of this type differently from their texts
 */
export function idOrder({ id }: ModelTable): SQL {
  const type = baseType(id);
  if (type === 'uuid') return sql`${id}`;
  if (/^(?:text|varchar|char)$/.test(type)) return sql`${id} collate "C"`;
  const { name } = getTableConfig(id.table);
  throw new InvariantViolationError(`Table ${name} has ids of type ${type}: declare a uuid or a text`);
}

function kindOf(table: ModelTable, field: string, column: TableColumn | undefined): ValueKind {
  const { name } = getTableConfig(table);
  if (column === undefined)
    throw new InvariantViolationError(`Table ${name} has no column ${field} to order a page by`);
  const { order } = column.type;
  const { notNull } = column.column;
  if (order !== undefined && notNull) return order;
  const reason = notNull
    ? `values of the type ${column.column.getSQLType()} have no order`
    : 'it may be null';
  throw new InvariantViolationError(
    `Pages cannot be ordered by ${name}.${field}, because ${reason}: order them by another column`,
  );
}

/** Texts are ordered by their bytes, whatever the database's locale is. */
function comparable(column: PgColumn | undefined): SQL {
  if (column !== undefined && isEnum(column)) return sql`${column}::text collate "C"`;
  return /^(text|varchar)/.test(column?.getSQLType() ?? '') ? sql`${column} collate "C"` : sql`${column}`;
}
