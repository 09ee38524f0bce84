import { describe, expect, test } from 'vitest';

import { errorText } from './attempt-failure.js';

/** An error whose property throws when it is read. */
function withThrowing(property: 'name' | 'message' | 'cause'): Error {
  return Object.defineProperty(new Error('shown'), property, {
    get: () => {
      throw new Error('the getter throws');
    },
  });
}

/** Throws at every access. */
const hostile = new Proxy(new Error('never seen'), {
  get: () => {
    throw new Error('get');
  },
  getPrototypeOf: () => {
    throw new Error('getPrototypeOf');
  },
  has: () => {
    throw new Error('has');
  },
});

function cyclic(): Error {
  const one = new Error('one');
  one.cause = new Error('two', { cause: one });
  return one;
}

describe('the text of an error', () => {
  test('contains the name and message of an error and of its causes', () => {
    const error = new TypeError('outer', { cause: new RangeError('inner', { cause: 'a text' }) });
    expect(errorText(error)).toBe('TypeError: outer, caused by RangeError: inner, caused by a text');
  });

  test.each([
    ['a message that ends within an emoji', new Error('👍'.slice(0, 1)), 'Error: \ufffd'],
    ['a NUL', new Error('a\0b'), 'Error: ab'],
    ['undefined', undefined, 'undefined'],
    ['null', null, 'null'],
    ['a symbol', Symbol('s'), 'Symbol(s)'],
    ['a bigint', 1n, '1'],
    ['an object without a prototype', Object.create(null), 'a thrown object that has no text'],
    [
      'a message that is not a string',
      Object.assign(new Error(), { message: { a: 1 } }),
      'Error: [object Object]',
    ],
    ['a message that throws', withThrowing('message'), 'Error: (unreadable)'],
    ['a name that throws', withThrowing('name'), '(unreadable): shown'],
    ['a cause that throws', withThrowing('cause'), 'Error: shown'],
    ['a proxy that refuses everything', hostile, 'a thrown object that has no text'],
    ['causes in a circle', cyclic(), 'Error: one, caused by Error: two'],
    [
      'an AggregateError whose errors are gone',
      Object.assign(new AggregateError([], 'all failed'), { errors: undefined }),
      'AggregateError: all failed',
    ],
    [
      'an AggregateError',
      new AggregateError([new Error('a'), 'b', hostile], 'all failed'),
      'AggregateError: all failed [Error: a; b; a thrown object that has no text]',
    ],
  ])('is storable for %s', (_what, thrown, text) => {
    expect(errorText(thrown)).toBe(text);
  });

  test('is never cut in the middle of a character', () => {
    // This includes the first and the last characters that need surrogates.
    for (const character of ['👍', '\u{10000}', '\u{10ffff}']) {
      for (const prefix of ['', 'x']) {
        const text = errorText(new Error(prefix + character.repeat(5_000)));
        expect(text.isWellFormed()).toBe(true);
        expect(text).not.toContain('\ufffd');
        expect(text.length).toBeGreaterThanOrEqual(1_999);
        expect(text.length).toBeLessThanOrEqual(2_000);
      }
    }
  });

  test('is as long as possible without splitting a character', () => {
    expect(errorText(new Error('x'.repeat(5_000)))).toBe(`Error: ${'x'.repeat(1_993)}`);
  });

  test('contains the first five errors of a chain of causes', () => {
    let error = new Error('6');
    for (const message of ['5', '4', '3', '2', '1']) error = new Error(message, { cause: error });
    expect(errorText(error)).toBe(
      'Error: 1, caused by Error: 2, caused by Error: 3, caused by Error: 4, caused by Error: 5',
    );
  });

  test('stays short and is made quickly for very many causes and very long messages', () => {
    let error = new Error('x'.repeat(50_000_000));
    for (let depth = 0; depth < 100_000; depth++) error = new Error('next', { cause: error });
    const many = new AggregateError(
      Array.from({ length: 100_000 }, () => error),
      'many',
      { cause: error },
    );
    expect(errorText(many).length).toBeLessThanOrEqual(2_000);
  });
});
