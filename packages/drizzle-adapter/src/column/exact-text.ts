import { readOf } from '@framework/core/adapter';
import { is } from 'drizzle-orm';
import { PgArray, type PgColumn, PgCustomColumn } from 'drizzle-orm/pg-core';

/** The texts of a row that may say more than the values which they were read as, by the keys of their columns. */
export type ExactTexts = ReadonlyMap<string, string>;

const microseconds = /\.\d{4}/;
/** More digits than a number is sure to hold, or zeros that it does not write. */
const manyDigits = /[\d.]{16}|\.\d*0(?!\d)/;
const anyText = /(?:)/;

/**
 * Matches those texts of a column that may say more than the value which they are read as: timestamps with microseconds, numbers with
 * many digits, alone or within JSON, and all texts of a custom type. `undefined` for a column whose values say everything.
 */
function inexactTexts(column: PgColumn): RegExp | undefined {
  if (is(column, PgArray)) return inexactTexts(column.baseColumn);
  if (is(column, PgCustomColumn)) return anyText;
  switch (column.dataType) {
    case 'date':
      return microseconds;
    case 'json':
      return manyDigits;
    case 'number':
      return /^(?:numeric|big)/.test(column.getSQLType()) ? manyDigits : undefined;
    default:
      return undefined;
  }
}

/** The exact texts of rows, as long as nobody has made a model from them. */
const textsOfRows = new WeakMap<object, ExactTexts>();

/** Remembers the exact texts of a row, if there are any. */
export class ExactTextMemory {
  readonly #columns: readonly (readonly [key: string, index: number, inexact: RegExp])[];

  /** @param columns in the order in which the values of a row are given */
  constructor(columns: readonly (readonly [key: string, column: PgColumn])[]) {
    this.#columns = columns.flatMap(([key, column], index) => {
      const inexact = inexactTexts(column);
      return inexact === undefined ? [] : [[key, index, inexact] as const];
    });
  }

  /** Remembers those of a row that was read from texts and other values. */
  remember(row: object, values: readonly unknown[]): void {
    let texts: Map<string, string> | undefined;
    for (const [key, index, inexact] of this.#columns) {
      const value = values[index];
      if (typeof value === 'string' && inexact.test(value)) (texts ??= new Map()).set(key, value);
    }
    if (texts !== undefined) textsOfRows.set(row, texts);
  }
}

/** The exact texts of a row; `undefined` if there are none. */
export function exactTextsOfRow(row: object): ExactTexts | undefined {
  return textsOfRows.get(row);
}

/** The exact texts of the row that a model was read from. */
export function exactTextsOf(model: object): ExactTexts | undefined {
  return readOf(model)?.form as ExactTexts | undefined;
}
