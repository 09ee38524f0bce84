import type { Change, ChangeSet } from '@framework/core/adapter';

import type { Row, RowShape } from './row-encoder.js';

/** One row that a group writes, with the values of the last plan that changes it. */
export interface GroupRow {
  readonly kind: Change['kind'];
  readonly shape: RowShape;
  readonly id: string;
  /** The version that its first plan expects. */
  readonly expectedVersion: number;
  /** The version that its last plan writes, and that a further plan must expect. */
  version: number;
  /** The index of its first plan. */
  readonly plan: number;
  /** The first plan's change, which is reported if the row is stale. */
  readonly change: Change;
  values: readonly unknown[];
}

/** The rows that a group can write, and which plans must be written together. */
export interface GroupRows {
  readonly rows: readonly GroupRow[];
  /**
   * The unit of each plan: plans that change the same row are in the same unit. `undefined` for a plan that is written
   * alone.
   */
  readonly units: readonly (number | undefined)[];
}

/** Says how rows of a shape may be written. */
export interface ShapeKnowledge {
  /** Whether rows of this shape may not be part of a group. */
  readonly isRefused: (shape: RowShape) => boolean;
  /** Whether a row that several plans change in turn may be written only once. */
  readonly isMerged: (shape: RowShape) => boolean;
}

/**
 * Combines the rows of many plans: a row that several plans change in turn is written once, if that is allowed.
 *
 * A plan is written alone in any of these cases: rows of one of its shapes may not be part of a group; it changes a row of an earlier
 * plan and the row may not be written only once, has other columns in this plan, or does not have the expected version; or it changes
 * a row of another plan that is written alone.
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
        !alone.has(key) && fits(change, rows.get(key), isMerged) && !isRefused((change.row as Row).shape),
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
  const { shape } = row as Row;
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

const headerBytes = 20;
const textOid = 25;
/** UTF-8 needs at most three bytes per UTF-16 unit of a JavaScript string. */
const bytesPerUnit = 3;
/** The maximum number of bytes that are kept for later arrays. */
const scratchMax = 1024 * 1024;

/** A buffer for arrays whose size is not known yet; grows to the largest array so far, up to the maximum above. */
let scratch: Buffer = Buffer.allocUnsafe(64 * 1024);

/**
 * Encodes texts as one parameter of type `text[]` in PostgreSQL's binary format, in which nothing needs escaping.
 *
 * @param texts at least one; `null` stands for SQL's null
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
