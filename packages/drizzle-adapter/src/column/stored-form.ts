import { isDeepStrictEqual } from 'node:util';

import { readOf, setRead } from '@framework/core/adapter';

import type { TableColumn } from './column-type.js';

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

/** The exact texts of rows that were read, until a model is made from each row. */
const textsOfRows = new WeakMap<object, ExactTexts>();

/** Remembers the exact texts of a row, if there are any. */
export class ExactTextMemory {
  readonly #columns: readonly (readonly [key: string, index: number, inexact: RegExp])[];

  /** @param columns in the order in which the values of a row are given */
  constructor(columns: readonly TableColumn[]) {
    this.#columns = columns.flatMap(({ key, type: { inexact } }, index) =>
      inexact === undefined ? [] : [[key, index, inexact] as const],
    );
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

/** Whether a value is still the one that was read. */
export function isUnchanged(read: unknown, now: unknown): boolean {
  if (read instanceof Date && now instanceof Date) return read.getTime() === now.getTime();
  return isDeepStrictEqual(read, now);
}
