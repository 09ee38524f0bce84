import { validate, version } from 'uuid';
import { describe, expect, test } from 'vitest';

import { ShardedId } from './id.js';
import { ShardIdentifier } from './shard-identifier.js';
import { type IdSource, randomUuid, timeOrderedUuid, useIdSource } from './uuid-v7.js';

/** The milliseconds in an id. */
function timeOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
}

describe('a time-ordered UUID', () => {
  test('has version 7, differs from all others, and sorts after those made before', () => {
    const ids = Array.from({ length: 20_000 }, () => timeOrderedUuid());
    expect(ids.every((id) => validate(id) && version(id) === 7)).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.toSorted()).toEqual(ids);
  });

  test('carries the time at which it was made', () => {
    const beforeMs = Date.now();
    const ms = timeOf(timeOrderedUuid());
    expect(ms).toBeGreaterThanOrEqual(beforeMs);
    expect(ms).toBeLessThanOrEqual(Date.now());
  });
});

test('a random UUID has version 4, and differs from all others', () => {
  const ids = Array.from({ length: 10_000 }, () => randomUuid());
  expect(ids.every((id) => validate(id) && version(id) === 4)).toBe(true);
  expect(new Set(ids).size).toBe(ids.length);
});

/** A source whose time stands still, and whose bytes count up. */
function countingSource(): IdSource {
  let count = 0;
  return {
    nowMs: () => 1_000,
    fillRandom: (bytes) => {
      for (let index = 0; index < bytes.length; index++) bytes[index] = count++;
    },
  };
}

/** An id of each kind, some of them twice. */
function madeIds(): readonly string[] {
  return [
    timeOrderedUuid(),
    timeOrderedUuid(),
    randomUuid(),
    ShardedId.generate(Object, ShardIdentifier.of(1, 2)).value,
    ShardedId.generate(Object, ShardIdentifier.of(1, 2)).value,
  ];
}

/** The ids from another source. */
function idsFromSource(): readonly string[] {
  const putBack = useIdSource(countingSource());
  try {
    return madeIds();
  } finally {
    putBack();
  }
}

describe('another source of ids', () => {
  test('yields the same ids each time, by its own clock, whatever was made before', () => {
    const ids = idsFromSource();
    expect(new Set(ids).size).toBe(ids.length);
    expect([ids[0], ids[1], ids[3], ids[4]].map((id) => timeOf(id!))).toEqual([1_000, 1_000, 1_000, 1_000]);
    madeIds();
    expect(idsFromSource()).toEqual(ids);
  });

  test('begins anew each time that it is used', () => {
    const source: IdSource = { nowMs: () => 1_000, fillRandom: (bytes) => void bytes.fill(7) };
    const made = [1, 2].map(() => {
      const putBack = useIdSource(source);
      const ids = [timeOrderedUuid(), ShardedId.generate(Object, ShardIdentifier.of(0, 0)).value];
      putBack();
      return ids;
    });
    expect(made[1]).toEqual(made[0]);
  });

  test('is gone once the former one is put back', () => {
    const beforeMs = Date.now();
    idsFromSource();
    expect(timeOf(timeOrderedUuid())).toBeGreaterThanOrEqual(beforeMs);
    expect(timeOf(ShardedId.generate(Object, ShardIdentifier.of(0, 0)).value)).toBeGreaterThanOrEqual(
      beforeMs,
    );
  });
});
