import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { seed } from '../../test/seed.js';
import { Wallet } from '../../test/wallet.js';
import { Id, ShardedId } from './id.js';
import { ShardIdentifier } from './shard-identifier.js';

/** An id as another implementation of the layout makes it, bit by bit. */
function idFromBits(bits: {
  readonly timeMs: bigint;
  readonly randA: bigint;
  readonly group: bigint;
  readonly member: bigint;
  readonly random: bigint;
}): string {
  const high = (bits.timeMs << 16n) | (0b0111n << 12n) | bits.randA;
  const low = (0b10n << 62n) | (bits.group << 54n) | (bits.member << 48n) | bits.random;
  const digits = ((high << 64n) | low).toString(16).padStart(32, '0');
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

describe('generate', () => {
  test('makes an id that carries its shard', () => {
    const shard = ShardIdentifier.of(1, 0);
    const id = ShardedId.generate(Wallet, shard);
    expect(id).toBeInstanceOf(Id);
    expect(id.value).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-8040-[0-9a-f]{12}$/);
    expect(id.resolveShardIdentifier()).toBe(shard);
  });

  test('makes ids that sort in the order of their creation', () => {
    const ids = Array.from(
      { length: 1_000 },
      () => ShardedId.generate(Wallet, ShardIdentifier.of(3, 4)).value,
    );
    expect([...ids].sort()).toEqual(ids);
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe(`the shard of an id (seed ${seed})`, () => {
  const group = fc.integer({ min: 0, max: 255 });
  const member = fc.integer({ min: 0, max: 63 });

  test('is the one for which the id was generated', () => {
    const property = fc.property(group, member, (each, other) => {
      const shard = ShardIdentifier.of(each, other);
      const { value } = ShardedId.generate(Wallet, shard);
      expect(ShardedId.of(Wallet, value).resolveShardIdentifier()).toBe(shard);
    });
    fc.assert(property, { seed, numRuns: 1_000 });
  });

  test('is the one written by another implementation of the layout', () => {
    const property = fc.property(
      fc.bigInt(0n, 2n ** 48n - 1n),
      fc.bigInt(0n, 2n ** 12n - 1n),
      group,
      member,
      fc.bigInt(0n, 2n ** 48n - 1n),
      (timeMs, randA, each, other, random) => {
        const text = idFromBits({ timeMs, randA, group: BigInt(each), member: BigInt(other), random });
        expect(ShardedId.of(Wallet, text).resolveShardIdentifier()).toBe(ShardIdentifier.of(each, other));
      },
    );
    fc.assert(property, { seed, numRuns: 1_000 });
  });
});

test.each([
  ['018f3c00-0000-7abc-8000-000000000000', 0, 0],
  ['018f3c00-0000-7abc-803f-ffffffffffff', 0, 63],
  ['018f3c00-0000-7abc-8040-000000000000', 1, 0],
  ['018f3c00-0000-7abc-b221-000000000000', 200, 33],
  ['018f3c00-0000-7abc-bfc0-000000000000', 255, 0],
  ['018f3c00-0000-7abc-bfff-ffffffffffff', 255, 63],
])('the id %s is read with the shard (%i, %i)', (text, group, member) => {
  expect(ShardedId.of(Wallet, text).resolveShardIdentifier()).toBe(ShardIdentifier.of(group, member));
});

test('an id is accepted in upper case and written in lower case', () => {
  const id = ShardedId.of(Wallet, '018F3C00-ABCD-7ABC-BFFF-FFFFFFFFFFFF');
  expect(id.value).toBe('018f3c00-abcd-7abc-bfff-ffffffffffff');
  expect(id.resolveShardIdentifier()).toBe(ShardIdentifier.of(255, 63));
  expect(id.equals(ShardedId.of(Wallet, id.value))).toBe(true);
});

test.each([
  ['', 'nothing'],
  ['wallet-1', 'not a UUID'],
  ['018f3c00-0000-4abc-8000-000000000000', 'version 4'],
  ['018f3c00-0000-1abc-8000-000000000000', 'version 1'],
  ['018f3c00-0000-8abc-8000-000000000000', 'version 8'],
  ['018f3c00-0000-7abc-7000-000000000000', 'variant 01'],
  ['018f3c00-0000-7abc-c000-000000000000', 'variant 11'],
  ['018f3c00-0000-7abc-8000-00000000000', 'one digit too few'],
  ['018f3c00-0000-7abc-8000-0000000000000', 'one digit too many'],
  ['018f3c00-0000-7abc-8000-00000000000g', 'no hexadecimal digit'],
  ['018f3c0000007abc8000000000000000', 'no hyphens'],
  ['{018f3c00-0000-7abc-8000-000000000000}', 'braces'],
  [' 018f3c00-0000-7abc-8000-000000000000', 'a leading space'],
  ['018f3c00-0000-7abc-8000-000000000000\n', 'a trailing line break'],
  ['00000000-0000-0000-0000-000000000000', 'the nil UUID'],
  ['ffffffff-ffff-ffff-ffff-ffffffffffff', 'the max UUID'],
])('the text %j is refused as an id: %s', (text) => {
  expect(() => ShardedId.of(Wallet, text)).toThrow(expect.objectContaining({ code: 'invalid-id' }));
});

describe('derive', () => {
  const origin = ShardedId.of(Wallet, '018f3c00-1234-7abc-8040-0123456789ab');
  const shard = ShardIdentifier.of(3, 4);

  test('makes the same id for the same origin on a shard, with the time of the origin', () => {
    const id = ShardedId.derive(Wallet, origin, shard);
    // The digits that the pattern leaves open are those of the SHA-256 of `Wallet/018f3c00-1234-7abc-8040-0123456789ab`.
    expect(id.value).toMatch(/^018f3c00-1234-7[0-9a-f]{3}-80c4-[0-9a-f]{12}$/);
    expect(id.resolveShardIdentifier()).toBe(shard);
    expect(ShardedId.derive(Wallet, Id.of(Wallet, origin.value.toUpperCase()), shard)).toEqual(id);
  });

  test('makes another id for another class, or for an origin that differs even in its shard', () => {
    class Decision {
      declare readonly id: unknown;
    }
    const elsewhere = ShardedId.of(Wallet, '018f3c00-1234-7abc-8080-0123456789ab');
    const ids = [
      origin,
      ShardedId.derive(Wallet, origin, shard),
      ShardedId.derive(Wallet, elsewhere, shard),
      ShardedId.derive(Decision, origin, shard),
    ];
    expect(new Set(ids.map(({ value }) => value)).size).toBe(ids.length);
  });

  test('refuses an origin that is not a version-7 UUID', () => {
    expect(() => ShardedId.derive(Wallet, Id.of(Wallet, 'order-1'), shard)).toThrow(
      expect.objectContaining({ code: 'invalid-id' }),
    );
  });
});
