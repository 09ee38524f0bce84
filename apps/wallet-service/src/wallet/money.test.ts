import { Big } from 'big.js';
import { describe, expect, test } from 'vitest';

import { assertAmountOf, decimalsOf } from './money.js';

const invalidAmount = expect.objectContaining({ code: 'invalid-amount' });

describe('decimalsOf', () => {
  test.each([
    ['JPY', 0],
    ['EUR', 2],
    ['MXN', 2],
    ['KWD', 3],
    ['CLF', 4],
  ])('finds that %s has %d decimals', (currency, decimals) => {
    expect(decimalsOf(currency)).toBe(decimals);
  });

  test.each(['ZZZ', '', 'eur', 'Eur', 'EURO', ' EUR', 'EUR ', '978', 'toString', '__proto__'])(
    'refuses %j, which is not in ISO 4217',
    (currency) => {
      expect(() => decimalsOf(currency)).toThrow(expect.objectContaining({ code: 'unknown-currency' }));
    },
  );
});

describe('assertAmountOf', () => {
  test.each([
    ['JPY', '100', '100.1'],
    ['EUR', '0.01', '0.001'],
    ['KWD', '0.001', '0.0001'],
    ['CLF', '0.0001', '0.00001'],
  ])('accepts as many decimals as %s has: %s, but not %s', (currency, fits, tooFine) => {
    expect(() => assertAmountOf(currency, new Big(fits))).not.toThrow();
    expect(() => assertAmountOf(currency, new Big(tooFine))).toThrow(invalidAmount);
  });

  test.each(['1.10', '1.100000', '100', '1e2', '0.00', '0e-30', '-1.5'])('accepts %s EUR', (amount) => {
    expect(() => assertAmountOf('EUR', new Big(amount))).not.toThrow();
  });

  test('accepts at most 20 digits before the decimal point', () => {
    const largest = new Big('99999999999999999999.99');
    expect(() => assertAmountOf('EUR', largest)).not.toThrow();
    expect(() => assertAmountOf('EUR', largest.plus('0.01'))).toThrow(invalidAmount);
    expect(() => assertAmountOf('EUR', new Big('1e20'))).toThrow(invalidAmount);
    expect(() => assertAmountOf('EUR', new Big('-1e20'))).toThrow(invalidAmount);
  });

  test.each(['1e1000000000', '1e-1000000000', '-1e1000000000'])(
    'refuses %s without expanding it',
    (amount) => {
      // Written out, it would be longer than any text can be.
      expect(() => assertAmountOf('EUR', new Big(amount))).toThrow(invalidAmount);
    },
  );

  test('refuses an unknown currency', () => {
    expect(() => assertAmountOf('ZZZ', new Big(1))).toThrow(
      expect.objectContaining({ code: 'unknown-currency' }),
    );
  });
});
