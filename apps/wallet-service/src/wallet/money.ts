import { decimalCodec } from '@framework/core';
import { Big } from 'big.js';
import { data as currencies } from 'currency-codes';

import { InvalidAmountError, UnknownCurrencyError } from './wallet-error.js';

/** The maximum number of digits before the decimal point, of an amount and of a balance after a deposit. */
const wholeDigitsMax = 20;

/** The number of decimals of each currency by its code, in a map because the package would search a list each time. */
const decimals: ReadonlyMap<string, number> = new Map(currencies.map(({ code, digits }) => [code, digits]));

/**
 * The number of decimal places of an ISO 4217 currency, such as 2 for EUR and 0 for JPY.
 *
 * @throws UnknownCurrencyError `unknown-currency`
 */
export function decimalsOf(currency: string): number {
  const known = decimals.get(currency);
  if (known === undefined) throw new UnknownCurrencyError(currency);
  return known;
}

/**
 * Checks that an amount is valid in its currency.
 *
 * @throws InvalidAmountError `invalid-amount` with more decimal places than the currency has, or more than 20 digits before the
 * decimal point
 */
export function assertAmountOf(currency: string, amount: Big): void {
  const decimalsMax = decimalsOf(currency);
  // Computed from the exponent: writing out 1e1000000 would take a megabyte.
  if (amount.e >= wholeDigitsMax)
    throw new InvalidAmountError(`An amount has at most ${wholeDigitsMax} digits before the decimal point`);
  if (amount.c.length - 1 - amount.e > decimalsMax && !amount.eq(0)) {
    throw new InvalidAmountError(`An amount of ${currency} has at most ${decimalsMax} decimal places`);
  }
}

/** The schema of a decimal in events and params: plain digits as text, an exact `Big` in the program. */
export const decimal = decimalCodec(Big);
