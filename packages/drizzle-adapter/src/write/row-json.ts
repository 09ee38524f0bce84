import { InvariantViolationError } from '@framework/core';
import { UnstorableValueError, exactJson } from '@framework/core/adapter';
import { SQL, is } from 'drizzle-orm';
import type { PgColumn } from 'drizzle-orm/pg-core';

import type { ModelTable } from '../model-columns.js';
import { type TableColumn, tableColumns } from '../column/column-type.js';
import type { Row } from './row-encoder.js';

/**
 * Writes rows of one table as JSON, and reads them back. The JSON has the keys of the columns, and each value in the form in
 * which it is sent to the database.
 */
export class RowJson {
  readonly #modelName: string;
  readonly #isWhole: boolean;
  readonly #columns: readonly TableColumn[];

  /**
   * @param isWhole whether a column that a row leaves out has no value, because the columns are exactly the model's fields
   * @throws InvariantViolationError `invariant-violation` when the database generates the values of a column
   */
  constructor(modelName: string, table: ModelTable, isWhole: boolean) {
    this.#modelName = modelName;
    this.#isWhole = isWhole;
    this.#columns = tableColumns(table);
    for (const { key, column } of this.#columns) {
      if (column.generated === undefined && column.generatedIdentity === undefined) continue;
      throw new InvariantViolationError(
        `A ${modelName} cannot be stored as the result of an action: only the database knows the values of its column ${key}; ` +
          'declare a schema of the result',
      );
    }
  }

  /** @throws UnstorableValueError `unstorable-value` when the row leaves a column to the database */
  write({ shape, values }: Row): string {
    const fields = Object.fromEntries(shape.fields.map((key, index) => [key, values[index]]));
    for (const { key } of this.#columns) {
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
    for (const { key, column, type } of this.#columns) {
      const sent = fields[key];
      if (sent === undefined) row[key] = this.#gained(key, column);
      else row[key] = sent === null ? null : type.read(sent);
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
