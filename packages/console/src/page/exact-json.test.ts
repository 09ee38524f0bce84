import { describe, expect, test } from 'vitest';

import { isNumeric, parseExact } from './exact-json.js';

describe('JSON that is parsed exactly', () => {
  test.each<[string, unknown]>([
    ['9007199254740993', '9007199254740993'],
    ['-9007199254740993', '-9007199254740993'],
    ['0.10', '0.10'],
    ['123456789.123456789123456789', '123456789.123456789123456789'],
    ['1e400', '1e400'],
    ['9007199254740991', 9_007_199_254_740_991],
    ['0.1', 0.1],
    ['"0.10"', '0.10'],
    ['null', null],
  ])('loses no digit of %s', (text, value) => {
    expect(parseExact(text)).toEqual(value);
    expect(parseExact(`{"items":[{"amount":${text}}]}`)).toEqual({ items: [{ amount: value }] });
  });
});

test.each<[unknown, boolean]>([
  [12, true],
  ['-12.50', true],
  ['0', true],
  ['007', false],
  ['1e3', false],
  ['', false],
  ['12 EUR', false],
  [null, false],
  ['9'.repeat(41), false],
])('%o counts as a number or not: %s', (value, numeric) => {
  expect(isNumeric(value)).toBe(numeric);
});
