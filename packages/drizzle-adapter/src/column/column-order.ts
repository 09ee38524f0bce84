import { InvalidCursorError, InvariantViolationError } from '@framework/core';
import { PageOrder, type PagePlace, type ValueKind, isStorableText } from '@framework/core/adapter';
import { type SQL, asc, desc, getTableColumns, gt, is, lt, sql } from 'drizzle-orm';
import { type PgColumn, PgEnumColumn, getTableConfig } from 'drizzle-orm/pg-core';

import type { ModelTable } from '../model-columns.js';
import { type IsCanonical, isDate, isTimestamp, isUuid } from './canonical-text.js';

/** How this process compares the values of a type, in the same way as the database, and which texts are valid values. */
interface OrderedType {
  readonly kind: ValueKind;
  readonly isValue: (text: string) => boolean;
  /** Converts a text to the one by which it is compared, if the text's own order is different. */
  readonly sortable?: (text: string) => string;
}

const integer = (bits: number): OrderedType => ({
  kind: 'decimal',
  isValue: (text) => /^-?\d{1,19}$/.test(text) && BigInt.asIntN(bits, BigInt(text)) === BigInt(text),
});
const secondDigits = 6;

/** Numbers as the database may contain them, whoever has written them. */
const number = (kind: 'number' | 'decimal', isDigits: (text: string) => boolean): OrderedType => ({
  kind,
  isValue: (text) => /^(NaN|-?Infinity)$/.test(text) || isDigits(text),
});

/** How many digits a `numeric` can have before and after the point. */
const wholeDigitsMax = 131_072;
const fractionDigitsMax = 16_383;

/**
 * Whether the database accepts a text as a number. It refuses numbers that it would round to zero or to infinity, and spellings
 * that only JavaScript understands.
 */
function isFloat(text: string, round: (value: number) => number): boolean {
  const [, digits] = /^-?(\d+(?:\.\d+)?)(?:e[+-]?\d+)?$/.exec(text) ?? [];
  if (digits === undefined) return false;
  const value = round(Number(text));
  return Number.isFinite(value) && (value !== 0 || !/[1-9]/.test(digits));
}

const years = /^(\d{4,7})(-.*?)( BC)?$/;
/** The database can hold this many whole years before the year 1. Its calendar begins in the year before those, on this day. */
const yearsBefore = 4_713;
const firstDay = '-11-24';

/**
 * Days and instants as the database may contain them, whoever has written them: also infinite ones, and those of every year that
 * it can hold.
 *
 * @param yearMax the last year that the database can hold completely
 */
function instant(isCanonical: IsCanonical, yearMax: number): OrderedType {
  return {
    kind: 'text',
    isValue: (text) => {
      if (text === 'infinity' || text === '-infinity') return true;
      const [, digits = '0', rest = '', before] = years.exec(text) ?? [];
      const year = Number(digits);
      const isInFirst = before !== undefined && year === yearsBefore + 1 && rest >= firstDay;
      if (year === 0 || (year > (before === undefined ? yearMax : yearsBefore) && !isInFirst)) return false;
      // The calendar repeats itself after 400 years.
      return isCanonical(`${2_000 + ((before === undefined ? year : 1 - year) % 400)}${rest}`);
    },
    sortable: (text) => {
      const [, digits = '0', rest = '', before] = years.exec(text) ?? [];
      if (rest === '') return text === 'infinity' ? '3' : '0';
      const year = before === undefined ? Number(digits) : 10 ** 7 - Number(digits);
      return `${before === undefined ? 2 : 1}${String(year).padStart(7, '0')}${rest}`;
    },
  };
}

/** The types by which pages can be ordered, by PostgreSQL's names without length, precision and scale. */
const orderedTypes: Readonly<Record<string, OrderedType>> = {
  uuid: { kind: 'text', isValue: isUuid },
  text: { kind: 'text', isValue: isStorableText },
  varchar: { kind: 'text', isValue: isStorableText },
  boolean: { kind: 'text', isValue: (text) => text === 'true' || text === 'false' },
  smallint: integer(16),
  smallserial: integer(16),
  integer: integer(32),
  serial: integer(32),
  bigint: integer(64),
  bigserial: integer(64),
  numeric: number('decimal', (text) => {
    const [, whole = '', fraction = ''] = /^-?(\d+)(?:\.(\d+))?$/.exec(text) ?? [];
    return whole !== '' && whole.length <= wholeDigitsMax && fraction.length <= fractionDigitsMax;
  }),
  real: number('number', (text) => isFloat(text, Math.fround)),
  'double precision': number('number', (text) => isFloat(text, Number)),
  date: instant(isDate, 5_874_897),
  timestamp: instant(isTimestamp(false, secondDigits), 294_276),
  'timestamp with time zone': instant(isTimestamp(true, secondDigits), 294_276),
};

/**
 * The order of the rows on pages, by a column and then the id, or by the id alone. It applies both in SQL and when rows of several
 * databases are merged.
 */
export class ColumnOrder {
  readonly orderBy: readonly SQL[];
  readonly #order: PageOrder;
  readonly #type: OrderedType;
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
    const columns = Object.entries(getTableColumns(table) as Record<string, PgColumn>);
    const order = new PageOrder(request);
    const direction = order.isDescending ? desc : asc;
    const index = columns.findIndex(([key]) => key === order.field);
    this.#order = order;
    this.#idIndex = columns.findIndex(([key]) => key === 'id');
    if (order.field === undefined) {
      this.#type = { kind: 'text', isValue: () => true };
      this.#key = id;
      this.orderBy = [direction(id)];
    } else {
      const column = columns[index]?.[1];
      this.#type = orderedType(table, order.field, column);
      this.#index = index;
      const value = comparable(column);
      this.#key = sql`(${value}, ${id})`;
      this.orderBy = [direction(value), direction(id)];
    }
  }

  /**
   * The position after which a page begins.
   *
   * @param idText converts an id to the form in which the database writes it; throws if it is not an id
   * @throws InvalidCursorError `invalid-cursor` when the cursor does not belong to this order
   */
  placeOf(cursor: string, idText: (id: string) => string): PagePlace {
    const { value, id } = this.#order.placeOf(cursor);
    if (this.#order.field !== undefined && !this.#type.isValue(value)) throw new InvalidCursorError(cursor);
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
    const { kind, sortable = (value: string) => value } = this.#type;
    const placed = rows.flat().map((row) => ({
      row,
      place: { value: sortable(row.place.value), id: row.place.id },
    }));
    return placed
      .sort((one, other) => this.#order.compare(one.place, other.place, kind))
      .map(({ row }) => row);
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
  const isText =
    type === 'text' || type === 'varchar' || (orderedTypes[type] === undefined && !is(id, PgEnumColumn));
  if (isText) return sql`${id} collate "C"`;
  const { name } = getTableConfig(id.table);
  throw new InvariantViolationError(`Table ${name} has ids of type ${type}: declare a uuid or a text`);
}

/** The SQL type of a column without length, precision and scale. */
function baseType(column: PgColumn): string {
  return column.getSQLType().replace(/ ?\([^)]*\)/, '');
}

function orderedType(table: ModelTable, field: string, column: PgColumn | undefined): OrderedType {
  const { name } = getTableConfig(table);
  if (column === undefined)
    throw new InvariantViolationError(`Table ${name} has no column ${field} to order a page by`);
  const type = is(column, PgEnumColumn) ? orderedTypes['text'] : orderedTypes[baseType(column)];
  if (type !== undefined && column.notNull) return type;
  const reason = column.notNull
    ? `the framework does not know the order of its type ${column.getSQLType()}`
    : 'it may be null';
  throw new InvariantViolationError(
    `Pages cannot be ordered by ${name}.${field}, because ${reason}: order them by another column`,
  );
}

/** Texts are ordered by their bytes, whatever the database's locale is. */
function comparable(column: PgColumn | undefined): SQL {
  if (is(column, PgEnumColumn)) return sql`${column}::text collate "C"`;
  return /^(text|varchar)/.test(column?.getSQLType() ?? '') ? sql`${column} collate "C"` : sql`${column}`;
}
