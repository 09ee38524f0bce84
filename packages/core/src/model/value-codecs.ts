import * as z from 'zod';

/** The schema of an instant, written as text of ISO 8601 in UTC: for params of actions and payloads of events. */
export const instantCodec: z.ZodType<Date, string> = z.codec(z.iso.datetime(), z.date(), {
  decode: (text) => new Date(text),
  encode: (date) => date.toISOString(),
});

/** The schema of a bigint, written as its digits. */
export const bigintCodec: z.ZodType<bigint, string> = z.codec(z.string().regex(/^-?\d+$/), z.bigint(), {
  decode: (digits) => BigInt(digits),
  encode: (value) => String(value),
});

/**
 * The schema of an exact decimal, written as plain digits: of a class that is made of them and writes them by `toFixed()`, such as
 * `Big` of big.js, `BigNumber` or `Decimal`.
 *
 * ```ts
 * const params = z.object({ amount: decimalCodec(Big) });
 * ```
 */
export function decimalCodec<D extends { toFixed(): string }>(
  decimalClass: new (digits: string) => D,
): z.ZodType<D, string> {
  return z.codec(z.string().regex(/^-?\d+(\.\d+)?$/), z.instanceof(decimalClass), {
    decode: (digits) => new decimalClass(digits),
    encode: (value) => value.toFixed(),
  });
}
