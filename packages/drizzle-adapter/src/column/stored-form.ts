import { isDeepStrictEqual } from 'node:util';

import { readOf, setRead } from '@framework/core/adapter';
import { is } from 'drizzle-orm';
import { PgArray, type PgColumn, PgCustomColumn } from 'drizzle-orm/pg-core';

/** The texts of a row that may say more than the values which they were read as, by the keys of their columns. */
type ExactTexts = ReadonlyMap<string, string>;

/** What a row contains that the fields of its model do not show. */
export interface StoredForm {
  readonly texts: ExactTexts;
  /** The keys of the columns that the addition of the row has left to the database. */
  readonly left: ReadonlySet<string>;
}

const noTexts: ExactTexts = new Map();
const nothing: ReadonlySet<string> = new Set();

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

/** The exact texts of rows that were read, until a model is made from each row. */
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

/** The form of a row that was read; `undefined` if a model says everything. */
export function formOfRow(row: object): StoredForm | undefined {
  const texts = textsOfRows.get(row);
  return texts && { texts, left: nothing };
}

/** The form of the row of which a model is a version. */
export function formOf(model: object): StoredForm | undefined {
  return readOf(model)?.form as StoredForm | undefined;
}

/** Collects the form of a row that is being written. */
export class FormOfVersion {
  #texts: Map<string, string> | undefined;
  #left: Set<string> | undefined;

  /** A column keeps the text that is stored. */
  keep(key: string, text: string): void {
    (this.#texts ??= new Map()).set(key, text);
  }

  /** A column is left to the database. */
  leave(key: string): void {
    (this.#left ??= new Set()).add(key);
  }

  /** Gives the form to the model of the row, instead of the previous version's. */
  record(model: object): void {
    const read = readOf(model);
    const [texts, left] = [this.#texts ?? noTexts, this.#left ?? nothing];
    if (read === undefined && texts.size + left.size === 0) return;
    // An addition was not read. Its plan says where it is written.
    setRead(model, { manager: model, timeline: 0, ...read, form: { texts, left } });
  }
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

/** Copies a value that the driver has returned if a column may pass it on unchanged: bytes, and objects such as points. */
export function ownValue(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return Buffer.from(value);
  if (Array.isArray(value)) return value.map(ownValue);
  const isPlain =
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
  return isPlain ? structuredClone(value) : value;
}

/** Copies bytes that are to be sent: the caller may use them for something else before the commit. */
export function ownBytes(sent: unknown): unknown {
  return sent instanceof Uint8Array ? Buffer.from(sent) : sent;
}
