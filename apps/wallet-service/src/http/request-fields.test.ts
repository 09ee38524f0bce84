import { describe, expect, test } from 'vitest';

import { parseExactJson } from './request-fields.js';

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
