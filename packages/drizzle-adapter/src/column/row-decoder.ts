import { FrameworkError } from '@framework/core';
import { UnreadableValueError } from '@framework/core/adapter';
import { type PgTable, getTableConfig } from 'drizzle-orm/pg-core';

import { type TableColumn, tableColumns } from './column-type.js';
import { ExactTextMemory } from './stored-form.js';

/** Decodes rows of one table, whose values are in the order of its columns. */
export class RowDecoder {
  readonly #table: string;
  readonly #columns: readonly TableColumn[];
  readonly #idIndex: number;
  readonly #exactTexts: ExactTextMemory;

  constructor(table: PgTable, columns: readonly TableColumn[] = tableColumns(table)) {
    this.#table = getTableConfig(table).name;
    this.#columns = columns;
    this.#idIndex = this.#columns.findIndex(({ key }) => key === 'id');
    this.#exactTexts = new ExactTextMemory(this.#columns);
  }

  /**
   * Returns the row as Drizzle's `$inferSelect` types it, from the texts of the server, or from the values that were sent.
   *
   * @throws UnreadableValueError `unreadable-value` when a model cannot hold one of its values
   */
  decode(values: readonly unknown[]): Record<string, unknown> {
    const row: Record<string, unknown> = {};
    this.#columns.forEach(({ key, column, type }, index) => {
      const value = values[index];
      try {
        row[key] = value === null || value === undefined ? null : type.read(value);
      } catch (cause) {
        if (FrameworkError.is(cause)) throw cause;
        const path = `${this.#table}.${column.name}`;
        throw new UnreadableValueError(path, String(values[this.#idIndex]), { cause });
      }
    });
    this.#exactTexts.remember(row, values);
    return row;
  }
}
