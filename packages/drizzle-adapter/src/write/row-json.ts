import { InvariantViolationError } from '@framework/core';
import { UnstorableValueError, exactJson } from '@framework/core/adapter';
import { SQL, getTableColumns, is } from 'drizzle-orm';
import { PgArray, PgBoolean, type PgColumn, PgTimestamp } from 'drizzle-orm/pg-core';

import type { ModelTable } from '../model-columns.js';
import { groupType } from '../column/column-type.js';
import type { Row } from './row-encoder.js';
import { readArray, valueReader } from '../read/table-reader.js';

type ReadValue = (sent: unknown) => unknown;

/**
 * Writes rows of one table as JSON, and reads them back. The JSON has the keys of the columns, and each value in the form in
 * which it is sent to the database.
 */
export class RowJson {
  readonly #modelName: string;
  readonly #isWhole: boolean;
  readonly #columns: readonly (readonly [key: string, read: ReadValue, column: PgColumn])[];

  /**
   * @param isWhole whether a column that a row leaves out has no value, because the columns are exactly the model's fields
   * @throws InvariantViolationError `invariant-violation` when a column cannot be read from what was sent
   */
  constructor(modelName: string, table: ModelTable, isWhole: boolean) {
    this.#modelName = modelName;
    this.#isWhole = isWhole;
    const columns = Object.entries(getTableColumns(table) as Record<string, PgColumn>);
    this.#columns = columns.map(([key, column]) => {
      const read = readerOf(column);
      if (read !== undefined) return [key, read, column];
      throw new InvariantViolationError(
        `A ${modelName} cannot be stored as the result of an action: its column ${key}, of type ${column.getSQLType()}, can be read ` +
          'only from the database; declare a schema of the result',
      );
    });
  }

  /** @throws UnstorableValueError `unstorable-value` when the row leaves a column to the database */
  write({ shape, values }: Row): string {
    const fields = Object.fromEntries(shape.fields.map((key, index) => [key, jsonValue(values[index])]));
    for (const [key] of this.#columns) {
      if (key in fields) continue;
      const reason = 'the row leaves it to the database; declare a schema of the result';
      if (!this.#isWhole) throw new UnstorableValueError(`${this.#modelName}.${key}`, reason);
      // Only a column that the table gains later may be absent.
      fields[key] = null;
    }
    return exactJson(fields, this.#modelName);
  }

  /**
   * Returns the row as a read of it would. A column that the table has gained since has its default.
   *
   * @throws UnstorableValueError `unstorable-value` when such a column has no constant default and may not be null
   */
  read(json: string): Record<string, unknown> {
    const fields = JSON.parse(json) as Readonly<Record<string, unknown>>;
    const row: Record<string, unknown> = {};
    for (const [key, read, column] of this.#columns) {
      const sent = fields[key];
      if (sent === undefined) row[key] = this.#gained(key, column);
      else row[key] = sent === null ? null : read(sent);
    }
    return row;
  }

  #gained(key: string, column: PgColumn): unknown {
    const { default: constant, defaultFn, notNull } = column;
    if (constant !== undefined && !is(constant, SQL)) return constant;
    if (constant === undefined && defaultFn === undefined && !notNull) return null;
    throw new UnstorableValueError(
      `${this.#modelName}.${key}`,
      'the result was stored before the table had this column, whose default is not a constant: declare one, or a schema of the result',
    );
  }
}

function jsonValue(sent: unknown): unknown {
  return typeof sent === 'bigint' ? String(sent) : sent;
}

/** Reads a column's value from what was sent, if the database need not be asked. */
function readerOf(column: PgColumn): ReadValue | undefined {
  if (column.generated !== undefined || column.generatedIdentity !== undefined) return undefined;
  if (is(column, PgArray)) {
    const read = readerOf(column.baseColumn);
    return read && ((sent) => readArray(withNulls(sent), read));
  }
  // In an array, a boolean is sent as text.
  if (is(column, PgBoolean)) return (sent) => String(sent) === 'true';
  // A timestamp is sent in UTC, whether or not the column has a time zone.
  if (is(column, PgTimestamp)) return (sent) => new Date(String(sent));
  return groupType(column) === undefined ? undefined : valueReader(column);
}

/** Drizzle writes a null in an array in lower case, and the database returns it in upper case; texts are in quotes. */
function withNulls(sent: unknown): unknown {
  if (typeof sent !== 'string') return sent;
  return sent.replaceAll(/"(?:[^"\\]|\\.)*"|null/g, (found) => (found === 'null' ? 'NULL' : found));
}
