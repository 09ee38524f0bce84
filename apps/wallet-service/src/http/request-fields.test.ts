import { describe, expect, test } from 'vitest';

import { idempotencyKey, limitField, parseExactJson } from './request-fields.js';

describe('JSON', () => {
  test.each([
    String.raw`{"a":"\"b\":1,\\","b":{"a":1},"c":[{"a":1},{"a":"a"},"a","a"]}`,
    '{"__proto__":1,"constructor":2,"":3}',
    '{"a":["}"],"b":"{"}',
  ])('is accepted if no object has a name twice: %s', (text) => {
    expect(Object.keys(parseExactJson(text) as object)).toEqual(Object.keys(JSON.parse(text) as object));
  });

  test.each([
    '{"a":1,"b":2,"a":1}',
    String.raw`{"a":1,"\u0061" :2}`,
    '{"a":[{"b":"}","b":1}]}',
    '{"a":{"a":1},"a":2}',
    '{"__proto__":1,"__proto__":2}',
  ])('is refused if an object has a name twice: %s', (text) => {
    expect(() => parseExactJson(text)).toThrow(SyntaxError);
  });

  test('is read whatever its strings contain', () => {
    const text = JSON.stringify({ a: `${String.raw`\"`.repeat(16_000)}{` });
    expect(parseExactJson(text)).toEqual(JSON.parse(text));
  });
});

function keyOf(key: string): string | undefined {
  return idempotencyKey(new Headers({ 'idempotency-key': key }));
}

describe('an idempotency key', () => {
  test.each(['!', '~', 'a b', 'x'.repeat(255), `!${' '.repeat(253)}~`])('is read: %j', (key) => {
    expect(keyOf(key)).toBe(key);
  });

  test.each(['', 'x'.repeat(256), 'é', 'a\u007f', 'a\tb', '\u00ff'])('is refused: %j', (key) => {
    expect(() => keyOf(key)).toThrow(
      expect.objectContaining({
        code: 'bad-request',
        faults: [expect.objectContaining({ pointer: 'header/Idempotency-Key' })],
      }),
    );
  });

  test('that is long differs from one that differs only at its end', () => {
    const long = 'k'.repeat(254);
    expect(keyOf(`${long}1`)).not.toBe(keyOf(`${long}2`));
  });

  test('is undefined without the header', () => {
    expect(idempotencyKey(new Headers())).toBeUndefined();
  });
});

test.each([
  ['1', 1],
  ['9', 9],
  ['10', 10],
  ['99', 99],
  ['100', 100],
  [undefined, 20],
])('a page with the limit %s has at most %d items', (limit, expected) => {
  expect(limitField.parse(limit)).toBe(expected);
});

test.each(['0', '101', '110', '1000', '01', '-1', '1.0', '1e1', '', ' 1', '1\n', '１'])(
  'a page with the limit %j is refused',
  (limit) => {
    expect(limitField.safeParse(limit).success).toBe(false);
  },
);
