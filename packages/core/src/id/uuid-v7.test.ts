import { validate, version } from 'uuid';
import { describe, expect, onTestFinished, test } from 'vitest';

import { ShardedId } from './id.js';
import { ShardIdentifier } from './shard-identifier.js';
import { type IdSource, currentIdSource, randomUuid, timeOrderedUuid, useIdSource } from './uuid-v7.js';

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

/** A source whose random bytes have all bits set. */
class FullSource implements IdSource {
  timeMs = 5_000;

  nowMs(): number {
    return this.timeMs;
  }

  fillRandom(bytes: Uint8Array<ArrayBuffer>): void {
    bytes.fill(0xff);
  }
}

describe('ids whose random bytes have all bits set', () => {
  test('still sort in the order in which they were generated, and keep their time', () => {
    const putBack = useIdSource(new FullSource());
    onTestFinished(putBack);
    const ids = Array.from({ length: 1_000 }, () => timeOrderedUuid());
    expect(ids.findIndex((id, index) => index > 0 && id <= ids[index - 1]!)).toBe(-1);
    expect(new Set(ids.map(timeOf))).toEqual(new Set([5_000]));
  });

  test('are still of their version and variant, and of their shard', () => {
    const putBack = useIdSource(new FullSource());
    onTestFinished(putBack);
    expect([timeOrderedUuid(), randomUuid()].map((id) => [validate(id), version(id)])).toEqual([
      [true, 7],
      [true, 4],
    ]);
    const shard = ShardIdentifier.of(1, 2);
    expect(ShardedId.generate(Object, shard).resolveShardIdentifier()).toBe(shard);
  });
});

test('a time-ordered UUID sorts after earlier ones even if the clock goes backwards', () => {
  const source = new FullSource();
  const putBack = useIdSource(source);
  onTestFinished(putBack);
  const ids = [5_000, 4_000, 5_000, 1, 5_001].map((timeMs) => {
    source.timeMs = timeMs;
    return timeOrderedUuid();
  });
  expect(ids.toSorted()).toEqual(ids);
  expect(ids.map(timeOf)).toEqual([5_000, 5_000, 5_000, 5_000, 5_001]);
});

test.each([1, 16, 4_095, 4_096])(
  'the random bytes of this process differ each time: %d at a time',
  (size) => {
    const drawn = Array.from({ length: 40 }, () => {
      const bytes = new Uint8Array(size);
      currentIdSource().fillRandom(bytes);
      return bytes;
    });
    const all = Buffer.concat(drawn);
    // Of so many random bytes, hardly any two draws are equal, and few bytes are zero.
    expect(new Set(drawn.map((bytes) => Buffer.from(bytes).toString('hex'))).size).toBeGreaterThan(
      size === 1 ? 20 : 39,
    );
    expect(all.filter((byte) => byte === 0).length / all.length).toBeLessThan(size === 1 ? 0.2 : 0.05);
  },
);
