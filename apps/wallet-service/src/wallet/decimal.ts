import { Big } from 'big.js';
import * as z from 'zod';

/** The schema of a decimal in events and params: plain digits as text, an exact `Big` in the program. */
export const decimal = z.codec(z.string().regex(/^-?\d+(\.\d+)?$/), z.instanceof(Big), {
  decode: (text) => new Big(text),
  encode: (value) => value.toFixed(),
});
