import { isDeepStrictEqual } from 'node:util';

import { readOf, setRead } from '@framework/core/adapter';
import { is } from 'drizzle-orm';
import { PgArray, type PgColumn, PgCustomColumn } from 'drizzle-orm/pg-core';

/** The texts of a row that may say more than the values which they were read as, by the keys of their columns. */
export type ExactTexts = ReadonlyMap<string, string>;

/** Microseconds, no year of four digits, or a year that `Date` takes for one of another century. */
const unusualTime = /\.\d{4}|infinity|BC|(?<!\d)00\d\d-|\d{5}-/;
/** More digits than a number is sure to hold, digits that it writes in another way, or none. */
const unusualNumber = /[\d.]{16}|\.\d*0(?!\d)|0\.0{6}|[IN]/;
/** The same within JSON, and JSON's own null. */
const unusualJson = /[\d.]{16}|\.\d*0(?!\d)|^null$/;
const anyText = /(?:)/;

/**
 * Matches those texts of a column that may say more than the value which they are read as, such as timestamps with microseconds, numbers
 * with many digits, and all texts of `json` and of a custom type. `undefined` for a column whose values say everything.
 */
function inexactTexts(column: PgColumn): RegExp | undefined {
  if (is(column, PgArray)) return inexactTexts(column.baseColumn);
  if (is(column, PgCustomColumn)) return anyText;
  switch (column.dataType) {
    case 'date':
      return unusualTime;
    case 'json':
      return column.getSQLType() === 'json' ? anyText : unusualJson;
    case 'number':
      return /^(?:numeric|big)/.test(column.getSQLType()) ? unusualNumber : undefined;
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

/** Records the exact texts of the row that is written for a model: those of values that have not changed. */
export function keepExactTexts(model: object, form: ExactTexts): void {
  const read = readOf(model);
  if (read !== undefined) setRead(model, { ...read, form });
}

/**
 * Whether a value is still the one that was read. Instances may hide what distinguishes them, so they must also be written in the same
 * way. A value that cannot be written has not changed if it looks the same.
 */
export function isUnchanged(read: unknown, now: unknown, write: (value: unknown) => unknown): boolean {
  if (Object.is(read, now)) return true;
  if (read instanceof Date && now instanceof Date) return Object.is(read.getTime(), now.getTime());
  if (typeof read !== 'object' || typeof now !== 'object' || !isDeepStrictEqual(read, now)) return false;
  const written = attempted(() => write(now));
  return (
    written === undefined ||
    isDeepStrictEqual(
      attempted(() => write(read)),
      written,
    )
  );
}

/** The result of a function; `undefined` if it throws. */
function attempted(work: () => unknown): unknown {
  try {
    return work();
  } catch {
    return undefined;
  }
}
