import { expect, test } from 'vitest';

import { ShardIdentifier } from './shard-identifier.js';

test.each([
  [0, 0],
  [255, 63],
  [255, 0],
  [0, 63],
])('the shard of group %d and member %d has an identifier', (group, member) => {
  expect(ShardIdentifier.of(group, member)).toMatchObject({ group, member });
});

test.each([
  [-1, 0],
  [256, 0],
  [0, -1],
  [0, 64],
  [1.5, 0],
  [0, 1.5],
  [Number.NaN, 0],
  [0, Number.NaN],
  [Number.POSITIVE_INFINITY, 0],
  ['1' as unknown as number, 0],
])('the shard of group %s and member %s is refused', (group, member) => {
  expect(() => ShardIdentifier.of(group, member)).toThrow(expect.objectContaining({ code: 'invalid-shard' }));
});

test('identifiers of equal shards are one object', () => {
  expect(ShardIdentifier.of(7, 9)).toBe(ShardIdentifier.of(7, 9));
  expect(ShardIdentifier.of(7, 9)).not.toBe(ShardIdentifier.of(9, 7));
  expect(ShardIdentifier.of(1, 0)).not.toBe(ShardIdentifier.of(0, 63));
});

test('an identifier is immutable', () => {
  const shard: { group: number } = ShardIdentifier.of(7, 9);
  expect(() => (shard.group = 8)).toThrow(TypeError);
});

test('identifiers sort by group and then by member', () => {
  const places = [
    [1, 0],
    [0, 63],
    [10, 2],
    [0, 1],
    [10, 1],
  ] as const;
  const sorted = places
    .map(([group, member]) => ShardIdentifier.of(group, member))
    .sort(ShardIdentifier.compare);
  expect(sorted.map(({ group, member }) => [group, member])).toEqual([
    [0, 1],
    [0, 63],
    [1, 0],
    [10, 1],
    [10, 2],
  ]);
});

test('an identifier is readable in strings and in JSON', () => {
  expect(`${ShardIdentifier.of(1, 2)}`).toBe('shard (1, 2)');
  expect(JSON.stringify(ShardIdentifier.of(1, 2))).toBe('{"group":1,"member":2}');
});
