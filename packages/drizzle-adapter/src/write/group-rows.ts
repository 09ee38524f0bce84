import type { Change, ChangeSet } from '@framework/core/adapter';

import type { Row, RowShape } from './row-encoder.js';

/** One row that a group writes, as the last of its plans leaves it. */
export interface GroupRow {
  readonly kind: Change['kind'];
  readonly shape: RowShape;
  readonly id: string;
  /** What its first plan expects. */
  readonly expectedVersion: number;
  /** What its last plan writes, and what a further one must expect. */
  version: number;
  /** The place of its first plan. */
  readonly plan: number;
  /** The change of its first plan, of which a stale row is told. */
  readonly change: Change;
  values: readonly unknown[];
}

/** What a group can write, and what must be written together. */
export interface GroupRows {
  readonly rows: readonly GroupRow[];
  /** The unit of each plan: plans that change the same row have the same one. `undefined` for a plan that goes alone. */
  readonly units: readonly (number | undefined)[];
}

/** What is known of the rows of a shape. */
export interface ShapeKnowledge {
  /** Whether no group may hold them. */
  readonly isRefused: (shape: RowShape) => boolean;
  /** Whether one that several plans change in turn may be written once. */
  readonly isMerged: (shape: RowShape) => boolean;
}

/**
 * Lays the rows of many plans together: a row that several plans change in turn is written once, where it may be.
 *
 * A plan goes alone when it holds values that no array of texts can carry, when it changes a row that a plan before it changes
 * and that may not be written once, when it gives other columns of a row than that plan, when it does not expect the version
 * which that one writes, or when it follows a plan that goes alone.
 */
export function groupRows(group: readonly ChangeSet[], { isRefused, isMerged }: ShapeKnowledge): GroupRows {
  const rows = new Map<string, GroupRow>();
  const alone = new Set<string>();
  const parents: number[] = [];
  const isAlone = group.map(({ changes }, plan) => {
    parents.push(plan);
    const keyed = changes.map((change) => ({ key: rowKey(change), change }));
    const isFit = keyed.every(
      ({ key, change }) =>
        !alone.has(key) && !isRefused((change.row as Row).shape) && fits(change, rows.get(key), isMerged),
    );
    for (const { key, change } of keyed) {
      if (isFit) lay(change, { key, plan, rows, parents });
      else alone.add(key);
    }
    return !isFit;
  });
  const units = isAlone.map((goesAlone, plan) => (goesAlone ? undefined : rootOf(plan, parents)));
  return { rows: [...rows.values()], units };
}

function fits(
  { row, expectedVersion }: Change,
  before: GroupRow | undefined,
  isMerged: ShapeKnowledge['isMerged'],
): boolean {
  const { shape, values } = row as Row;
  if (shape.casts === undefined || !values.every(isPlain)) return false;
  if (before === undefined) return true;
  return before.shape === shape && before.version === expectedVersion && isMerged(shape);
}

function lay(
  change: Change,
  at: {
    readonly key: string;
    readonly plan: number;
    readonly rows: Map<string, GroupRow>;
    readonly parents: number[];
  },
): void {
  const { key, plan, rows, parents } = at;
  const before = rows.get(key);
  const { shape, values } = change.row as Row;
  if (before === undefined) {
    const { kind, expectedVersion, model } = change;
    const { version } = model;
    rows.set(key, { kind, shape, id: model.id.value, expectedVersion, version, plan, change, values });
  } else {
    before.values = values;
    before.version = change.model.version;
    parents[rootOf(plan, parents)] = rootOf(before.plan, parents);
  }
}

function rootOf(plan: number, parents: number[]): number {
  let root = plan;
  while (parents[root] !== root) root = parents[root] ?? root;
  parents[plan] = root;
  return root;
}

function rowKey({ row, model }: Change): string {
  return `${(row as Row).shape.table} ${model.id.value}`;
}

/** Whether a value has one text that means it, whatever its column is. */
function isPlain(value: unknown): boolean {
  return value === null || typeof value !== 'object';
}

const headerBytes = 20;
const textOid = 25;
/** UTF-8 takes at most three bytes for each unit of a JavaScript string. */
const bytesPerUnit = 3;
/** How much memory is kept for the next arrays. */
const scratchMax = 1024 * 1024;

/** Where arrays are written before their size is known; grows to the largest one. */
let scratch: Buffer = Buffer.allocUnsafe(64 * 1024);

/**
 * Writes texts as one parameter of type `text[]`, in PostgreSQL's binary form: nothing in them has to be escaped.
 *
 * @param texts at least one; `null` is SQL's
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/arrayfuncs.c array_recv
 */
export function textArray(texts: readonly (string | null)[]): Buffer {
  const bytes = scratchFor(texts);
  let end = headerBytes;
  let hasNull = 0;
  for (const text of texts) {
    if (text === null) {
      hasNull = 1;
      end = bytes.writeInt32BE(-1, end);
    } else {
      const length = bytes.write(text, end + 4, 'utf8');
      bytes.writeInt32BE(length, end);
      end += 4 + length;
    }
  }
  const dimensions = 1;
  const lowerBound = 1;
  [dimensions, hasNull, textOid, texts.length, lowerBound].forEach((field, index) =>
    bytes.writeInt32BE(field, index * 4),
  );
  return Buffer.from(bytes.subarray(0, end));
}

function scratchFor(texts: readonly (string | null)[]): Buffer {
  let size = headerBytes;
  for (const text of texts) size += 4 + (text === null ? 0 : text.length * bytesPerUnit);
  if (size <= scratchMax && size > scratch.length) scratch = Buffer.allocUnsafe(size);
  return size <= scratch.length ? scratch : Buffer.allocUnsafe(size);
}
