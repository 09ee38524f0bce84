import { expect, test } from 'vitest';

import { FixedIdSource } from '../../test/fixed-id-source.js';
import { ShardedIdGenerator } from './id.js';
import { ShardIdentifier } from './shard-identifier.js';

const global = ShardIdentifier.of(0, 0);

/** The milliseconds and the counter that an id shows. */
function placeInTime(id: string): readonly [timeMs: number, counter: number] {
  return [Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16), Number.parseInt(id.slice(15, 18), 16)];
}

// group and member as bits after the variant 10: 10gggggg ggmmmmmm
test.each([
  [0, 0, '0190a1b2-c3d4-7000-8000-0102030405ff'],
  [1, 0, '0190a1b2-c3d4-7000-8040-0102030405ff'],
  [0, 1, '0190a1b2-c3d4-7000-8001-0102030405ff'],
  [0, 63, '0190a1b2-c3d4-7000-803f-0102030405ff'],
  [200, 33, '0190a1b2-c3d4-7000-b221-0102030405ff'],
  [255, 0, '0190a1b2-c3d4-7000-bfc0-0102030405ff'],
  [255, 63, '0190a1b2-c3d4-7000-bfff-0102030405ff'],
])('an id encodes time, counter, shard (%i, %i) and random bits as %s', (group, member, expected) => {
  const generator = new ShardedIdGenerator(new FixedIdSource(0x0190_a1b2_c3d4));
  expect(generator.next(ShardIdentifier.of(group, member))).toBe(expected);
});

test('a generated id contains all 48 bits of the time', () => {
  const generator = new ShardedIdGenerator(new FixedIdSource(0xffff_ffff_fffe));
  expect(generator.next(global)).toMatch(/^ffffffff-fffe-7000-/);
});

test('a generator counts within a millisecond and restarts with the next one', () => {
  const source = new FixedIdSource(1_000);
  const generator = new ShardedIdGenerator(source);
  expect(placeInTime(generator.next(global))).toEqual([1_000, 0]);
  expect(placeInTime(generator.next(ShardIdentifier.of(1, 0)))).toEqual([1_000, 1]);
  source.timeMs = 1_001;
  expect(placeInTime(generator.next(global))).toEqual([1_001, 0]);
});

test('a generator runs ahead of the clock after 4,096 ids in one millisecond', () => {
  const source = new FixedIdSource(1_000);
  const generator = new ShardedIdGenerator(source);
  const ids = Array.from({ length: 4_097 }, () => generator.next(global));
  expect(placeInTime(ids[4_095]!)).toEqual([1_000, 0xfff]);
  expect(placeInTime(ids[4_096]!)).toEqual([1_001, 0]);
  source.timeMs = 1_001;
  expect(placeInTime(generator.next(global))).toEqual([1_001, 1]);
});

test('a generator keeps the order when the clock goes back', () => {
  const source = new FixedIdSource(5_000);
  const generator = new ShardedIdGenerator(source);
  const before = generator.next(global);
  source.timeMs = 4_000;
  const after = generator.next(global);
  expect(placeInTime(after)).toEqual([5_000, 1]);
  expect(after > before).toBe(true);
});

test('a generator makes 100,000 sorted and unique ids across shards', () => {
  const generator = new ShardedIdGenerator();
  const shards = [global, ShardIdentifier.of(255, 63), ShardIdentifier.of(1, 0)];
  const ids = Array.from({ length: 100_000 }, (_item, index) => generator.next(shards[index % 3]!));
  expect(ids.findIndex((id, index) => index > 0 && id <= ids[index - 1]!)).toBe(-1);
});

test.each([{ group: 256, member: 0 }, { group: 0, member: 64 }, { group: -1, member: 0 }, {}])(
  'a generator refuses a malformed shard: %j',
  (shard) => {
    expect(() => new ShardedIdGenerator().next(shard as ShardIdentifier)).toThrow(
      expect.objectContaining({ code: 'invalid-shard' }),
    );
  },
);

test.each([
  [0, 0, 'ffffffff-fffe-7000-8000-ffffffffffff'],
  [255, 63, 'ffffffff-fffe-7000-bfff-ffffffffffff'],
])('random bits that are all set change neither time nor shard (%i, %i)', (group, member, expected) => {
  const source = new FixedIdSource(
    0xffff_ffff_fffe,
    Array.from({ length: 6 }, () => 0xff),
  );
  expect(new ShardedIdGenerator(source).next(ShardIdentifier.of(group, member))).toBe(expected);
});

test('a generator keeps the order when the clock goes back after it has run ahead', () => {
  const source = new FixedIdSource(1_000);
  const generator = new ShardedIdGenerator(source);
  const ids = Array.from({ length: 4_097 }, () => generator.next(global));
  source.timeMs = 1;
  ids.push(...Array.from({ length: 4_096 }, () => generator.next(global)));
  expect(placeInTime(ids.at(-1)!)).toEqual([1_002, 0]);
  expect(ids.findIndex((id, index) => index > 0 && id <= ids[index - 1]!)).toBe(-1);
});
