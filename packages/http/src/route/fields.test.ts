import { expect, test } from 'vitest';

import { parseExactJson } from '../request/exact-json.js';
import { decimalField, limitField } from './fields.js';

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

const parse = (json: string): string => decimalField((digits) => digits).parse(parseExactJson(json));

test.each(['25.50', '1e2', '-0.1', '0.1000000000000000055511151231257827', '1e400'])(
  'the decimal %s has the same value as a string and as a number',
  (text) => {
    expect(parse(`"${text}"`)).toBe(text);
    const read = parse(text);
    expect(read === text || Number(read) === Number(text)).toBe(true);
  },
);

test.each(['""', '"1."', '".5"', '"+1"', '"0x1"', '"Infinity"', 'null', 'true', '[1]', '{}'])(
  'the decimal %s is refused',
  (json) => {
    expect(decimalField(String).safeParse(parseExactJson(json)).success).toBe(false);
  },
);
