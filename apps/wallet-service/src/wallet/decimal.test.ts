import { Big } from 'big.js';
import { expect, test } from 'vitest';
import * as z from 'zod';

import { decimal } from './money.js';

test.each(['0', '-1', '25.5', '0.1', '99999999999999999999.999999999999999999', '0.000000000000000001'])(
  'the decimal %s is read and written unchanged',
  (text) => {
    const value = z.decode(decimal, text);
    expect(value).toBeInstanceOf(Big);
    expect(z.encode(decimal, value)).toBe(text);
  },
);

test('decimals are written in plain digits, never with an exponent', () => {
  expect(z.encode(decimal, new Big('1e30'))).toBe('1000000000000000000000000000000');
  expect(z.encode(decimal, new Big('1e-18'))).toBe('0.000000000000000001');
});

test.each(['', '.5', '5.', '1e3', '+1', ' 1', '1,5', 'NaN', '0x10', '1\n'])(
  'the text %j is not read as a decimal',
  (text) => {
    expect(z.safeDecode(decimal, text).success).toBe(false);
  },
);

test.each([5, '5', null, undefined, 5n])('the value %o is not written as a decimal', (value) => {
  expect(z.safeEncode(decimal, value as unknown as Big).success).toBe(false);
});
