import { getTableColumns, is } from 'drizzle-orm';
import { PgArray, type PgColumn, type PgTable } from 'drizzle-orm/pg-core';
import pg from 'pg';
import { parse } from 'postgres-array';

/**
 * Types that Drizzle's columns read from text themselves: dates, times, intervals, JSON and their arrays. JSON read by
 * the driver would be read a second time, and a text in it such as `"12"` would become a number.
 */
const textTypes = new Set<number>([
  1082, 1114, 1184, 1186, 1115, 1182, 1185, 1187, 1231, 114, 199, 3802, 3807,
]);

/** Leaves to Drizzle's columns what they read from text themselves. */
export const drizzleTypes: pg.CustomTypesConfig = {
  getTypeParser: (type, format) => (textTypes.has(type) ? asText : pg.types.getTypeParser(type, format)),
};

/** Reads rows of one table that were selected in the order of its columns. */
export class RowDecoder {
  readonly #columns: readonly (readonly [key: string, read: (value: unknown) => unknown])[];

  constructor(table: PgTable) {
    const columns = Object.entries(getTableColumns(table) as Record<string, PgColumn>);
    this.#columns = columns.map(([key, column]) => [key, reader(column)]);
  }

  /** Gives the row as Drizzle's `$inferSelect` types it. */
  decode(values: readonly unknown[]): Record<string, unknown> {
    const row: Record<string, unknown> = {};
    this.#columns.forEach(([key, read], index) => {
      const value = values[index];
      row[key] = value === null || value === undefined ? null : read(value);
    });
    return row;
  }
}

function reader(column: PgColumn): (value: unknown) => unknown {
  return is(column, PgArray)
    ? (value) => readArray(column, value)
    : (value) => column.mapFromDriverValue(value);
}

/** Reads an array whose elements may be null, which Drizzle's own reading takes for values. */
function readArray({ baseColumn }: { readonly baseColumn: PgColumn }, value: unknown): readonly unknown[] {
  const elements: readonly unknown[] = typeof value === 'string' ? parse(value) : (value as unknown[]);
  const read = reader(baseColumn);
  return elements.map((element) => (element === null ? null : read(element)));
}

function asText(value: string): string {
  return value;
}
