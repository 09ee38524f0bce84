import { ShardIdentifier, ShardedId } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { faithfulCopy } from './memory-row.js';

/** A class that keeps its constructor in every instance, like big.js. */
class Amount {
  readonly digits: number[];
  readonly ownConstructor = Amount;

  constructor(...digits: number[]) {
    this.digits = digits;
  }

  get sum(): number {
    return this.digits.reduce((sum, digit) => sum + digit, 0);
  }
}

class Hidden {
  readonly #value = 1;

  get value(): number {
    return this.#value;
  }
}

describe('faithfulCopy', () => {
  test.each([
    ['a plain object', { a: [1, { b: null, c: undefined }], d: 'ünïcode' }],
    ['an instance of a class', new Amount(1, 2)],
    ['an id', ShardedId.generate(Object, ShardIdentifier.of(1, 2))],
    ['a date', new Date(0)],
    ['a map', new Map([['key', { deep: [1n] }]])],
    ['a set', new Set([{ a: 1 }])],
    ['bytes', new Uint8Array([1, 2])],
    ['a big integer', 2n ** 70n],
  ])('returns %s unchanged', (_what, value) => {
    expect(faithfulCopy(value, 'value')).toStrictEqual(value);
  });

  test('shares no mutable part with the original', () => {
    const value = {
      list: [1],
      date: new Date(0),
      amount: new Amount(1, 2),
      map: new Map([['key', [1]]]),
      bytes: Buffer.from([1]),
    };
    const copy = faithfulCopy(value, 'value');
    value.list.push(2);
    value.date.setTime(1);
    value.amount.digits.push(3);
    value.map.get('key')?.push(2);
    value.bytes[0] = 2;
    expect(copy).toStrictEqual({
      list: [1],
      date: new Date(0),
      amount: new Amount(1, 2),
      map: new Map([['key', [1]]]),
      bytes: Buffer.from([1]),
    });
    expect(copy.amount.sum).toBe(3);
  });

  test('keeps a shard as the same object', () => {
    const shard = ShardIdentifier.of(3, 4);
    expect(faithfulCopy({ shard }, 'value').shard).toBe(shard);
  });

  test.each([
    ['NaN', { a: [Number.NaN] }, 'value.a[0]'],
    ['an invalid date', { a: new Date(Number.NaN) }, 'value.a'],
    ['a NUL character', { a: { b: '\u0000' } }, 'value.a.b'],
    ['a NUL character in a key', { '\u0000': 1 }, 'value'],
    ['a function', { a: () => 1 }, 'value.a'],
    ['a symbol', { a: Symbol('s') }, 'value.a'],
    ['an object that hides its state', { a: new Hidden() }, 'value.a'],
  ])('refuses %s', (_what, value, path) => {
    expect(() => faithfulCopy<unknown>(value, 'value')).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path }) as Error,
    );
  });

  test('refuses a value that contains itself', () => {
    const circle: { self?: unknown } = {};
    circle.self = circle;
    expect(() => faithfulCopy(circle, 'value')).toThrow(
      expect.objectContaining({ code: 'unstorable-value' }) as Error,
    );
  });
});
