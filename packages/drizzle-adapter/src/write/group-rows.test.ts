import { ShardIdentifier, ShardedId } from '@framework/core';
import type { Change, ChangeSet } from '@framework/core/adapter';
import { Tag } from '@framework/conformance';
import { expect, test } from 'vitest';

import { type GroupRows, groupRows } from './group-rows.js';
import type { RowShape } from './row-encoder.js';

const shard = ShardIdentifier.of(0, 0);
const shape: RowShape = {
  key: 'tags label',
  table: '"tags"',
  fields: [],
  columns: ['"id"', '"version"', '"label"'],
  idIndex: 0,
  versionColumn: '"version"',
  casts: ['uuid', 'bigint', 'text'],
  isWhole: false,
  declared: [],
};
/** A shape with fewer columns of the same table. */
const narrow: RowShape = { ...shape, key: 'tags', columns: ['"id"', '"version"'], casts: ['uuid', 'bigint'] };

const [one, other] = [newTag(), newTag()];

function newTag(): Tag {
  return new Tag({ id: ShardedId.generate(Tag, shard), state: 'ACTIVE', label: 'first', version: 1 });
}

/** An update that leaves a tag with this version. */
function updated(tag: Tag, version: number, of: RowShape = shape): Change {
  const model = new Tag({ id: tag.id, state: 'ACTIVE', label: 'of the model', version });
  const row = { shape: of, values: [tag.id.value, version, `v${version}`].slice(0, of.columns.length) };
  return { kind: 'update', repository: undefined as never, model, expectedVersion: version - 1, row };
}

function plan(...changes: readonly Change[]): ChangeSet {
  return { shard, action: undefined as never, changes, events: [] };
}

function laid(
  plans: readonly ChangeSet[],
  knowledge: Partial<Parameters<typeof groupRows>[1]> = {},
): GroupRows {
  return groupRows(plans, { isRefused: () => false, isMerged: () => true, ...knowledge });
}

test('rows that plans do not share are laid out separately, and each plan is a unit', () => {
  const { rows, units } = laid([plan(updated(one, 2)), plan(updated(other, 5))]);
  expect(rows).toMatchObject([
    { id: one.id.value, expectedVersion: 1, version: 2, plan: 0 },
    { id: other.id.value, expectedVersion: 4, version: 5, plan: 1 },
  ]);
  expect(units).toEqual([0, 1]);
});

test('a row that several plans change is laid out once, in its last state, and joins them into one unit', () => {
  const { rows, units } = laid([
    plan(updated(one, 2)),
    plan(updated(other, 2)),
    plan(updated(one, 3), updated(other, 3)),
  ]);
  expect(rows).toMatchObject([
    { expectedVersion: 1, version: 3, values: [one.id.value, 3, 'v3'] },
    { expectedVersion: 1, version: 3, values: [other.id.value, 3, 'v3'] },
  ]);
  expect(new Set(units).size).toBe(1);
});

test('a plan with rows that no group can hold is left out, together with the plans that follow it', () => {
  const plans = [plan(updated(one, 2, narrow)), plan(updated(one, 3)), plan(updated(other, 2))];
  const { rows, units } = laid(plans, { isRefused: (each) => each === narrow });
  expect(units).toEqual([undefined, undefined, 2]);
  expect(rows).toMatchObject([{ id: other.id.value }]);
});

test('a plan with one refused row is left out with all its rows', () => {
  const { rows, units } = laid([plan(updated(one, 2), updated(other, 2, narrow)), plan(updated(one, 2))], {
    isRefused: (each) => each === narrow,
  });
  expect(units).toEqual([undefined, undefined]);
  expect(rows).toEqual([]);
});

test.each([
  ['gives other columns of the row', updated(one, 3, narrow)],
  ['does not expect the version before', updated(one, 4)],
])('a plan that follows another one and %s is left out', (_what, change) => {
  const { rows, units } = laid([plan(updated(one, 2)), plan(change)]);
  expect(units).toEqual([0, undefined]);
  expect(rows).toMatchObject([{ version: 2 }]);
});

test('a later change of the same row is left out when its table does not allow merging', () => {
  const { units } = laid([plan(updated(one, 2)), plan(updated(one, 3))], { isMerged: () => false });
  expect(units).toEqual([0, undefined]);
});
