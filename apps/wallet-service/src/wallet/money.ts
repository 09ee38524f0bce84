import type { Big } from 'big.js';
import { code as findCurrency } from 'currency-codes';
import { InvalidAmount, UnknownCurrency } from './wallet-exception.js';

/** Digits before the point that a balance holds: the table's numeric(38, 18) has room for 20. */
const wholeDigitsMax = 20;

/**
 * The number of decimals of an ISO 4217 currency, such as 2 for EUR and 0 for JPY.
 *
 * @throws UnknownCurrency `unknown-currency`
 */
export function decimalsOf(currency: string): number {
  const known = findCurrency(currency);
  if (known?.code !== currency) throw new UnknownCurrency(currency);
  return known.digits;
}

/**
 * Checks that an amount is one of its currency.
 *
 * @throws InvalidAmount `invalid-amount` with more decimals than the currency has, or more than 20 digits before the point
 */
export function assertAmountOf(currency: string, amount: Big): void {
  const decimals = decimalsOf(currency);
  // Read off the exponent: writing 1e1000000 out would take a megabyte.
  if (amount.e >= wholeDigitsMax)
    throw new InvalidAmount(`An amount has at most ${wholeDigitsMax} digits before the point`);
  if (amount.c.length - 1 - amount.e > decimals && !amount.eq(0)) {
    throw new InvalidAmount(`An amount of ${currency} has at most ${decimals} decimals`);
  }
}
