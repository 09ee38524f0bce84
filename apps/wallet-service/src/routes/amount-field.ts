import { decimalField } from '@framework/http';
import { Big } from 'big.js';

import { InvalidAmountError } from '../wallet/wallet-error.js';

const exponentMax = 1_000;

/**
 * The schema of an amount in a request. Parsing throws InvalidAmountError (`invalid-amount`) for exponents beyond ±1,000, which no
 * currency needs and which would take megabytes to write out.
 */
export const amountField = decimalField((text) => {
  const amount = new Big(text);
  if (Math.abs(amount.e) <= exponentMax) return amount;
  throw new InvalidAmountError(
    'An amount has at most 20 digits before the decimal point, and at most as many decimal places as its currency',
  );
});
