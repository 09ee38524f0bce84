import { describe, expect, test } from 'vitest';

import { JsonNumber, parseExactJson } from './exact-json.js';

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

test.each([
  '0',
  '-0',
  '5',
  '-5',
  '5.0',
  '25.50',
  '0.1',
  '1e2',
  '1E+2',
  '1.5e-7',
  '1e21',
  '9007199254740991',
  '1.7976931348623157e308',
])('the number %s is read as a number, because a binary float does not change it', (text) => {
  expect(parseExactJson(text)).toBe(Number(text));
});

test.each([
  '9007199254740993',
  '0.1000000000000000055511151231257827',
  '1e400',
  '1e-400',
  '12345678901234567890.5',
])('the number %s keeps its text, because a binary float would change it', (text) => {
  expect(parseExactJson(`[${text}]`)).toEqual([new JsonNumber(text)]);
});

// After the first text, V8 takes the name of the second one for a backslash, with the value rounded.
test.each([
  [String.raw`{"x":1,"\\":1}`, String.raw`{"x":1,"\u0061":9007199254740993}`],
  [String.raw`{"x":1,"\\":1}`, String.raw`{"x":1,"\"":1}`],
  ['{}', String.raw`{"\\":1}`],
])('a name that is a single escape is refused after %s: %s', (before, text) => {
  for (let count = 0; count < 3; count++) {
    JSON.parse(before);
    expect(() => parseExactJson(text)).toThrow('A name consists of a single escape');
  }
});

test('an escape beside other characters of a name, or in a value, is read', () => {
  expect(parseExactJson(String.raw`{"\u0061mount":"\"\\","n":1.5}`)).toEqual({ amount: '"\\', n: 1.5 });
});

test('a number of a million digits is read before the test times out', () => {
  // A scan whose time grows with the square of the length takes minutes.
  const digits = `1${'0'.repeat(999_998)}1`;
  const [number] = parseExactJson(`[${digits}]`) as readonly JsonNumber[];
  expect(JsonNumber.sourceOf(number!)).toBe(digits);
});
