import { z } from '@hono/zod-openapi';
import { Big } from 'big.js';
import { InvalidAmount } from '../../wallet/wallet-exception.js';
import { JsonNumber } from './json-number.js';

const grammar = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const exponentMax = 1_000;

/**
 * The schema of an amount in a request: a JSON string or a JSON number, read exactly as it is written.
 *
 * Both follow the grammar of JSON numbers. Parsing throws InvalidAmount (`invalid-amount`) for exponents beyond
 * ±1,000, which no currency needs and which would take megabytes to write out.
 */
export const decimalField = z
  .union([z.string(), z.instanceof(JsonNumber).transform(({ source }) => source)], {
    error: 'must be a decimal',
  })
  .pipe(z.string().regex(grammar, 'must be a decimal such as "25.50"'))
  .transform((text) => bounded(new Big(text)))
  .openapi({
    type: ['string', 'number'],
    pattern: grammar.source,
    description: 'A decimal, exact as written, whether as a string or as a number.',
    example: '25.50',
  });

function bounded(amount: Big): Big {
  if (Math.abs(amount.e) <= exponentMax) return amount;
  throw new InvalidAmount(
    'An amount has at most 20 digits before the point, and the decimals of its currency',
  );
}
