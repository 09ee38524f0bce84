import * as z from 'zod';

/** The schema of an instant in stored results: ISO 8601 in UTC as text, a `Date` in the program. */
export const instant: z.ZodType<Date, string> = z.codec(z.iso.datetime(), z.date(), {
  decode: (text) => new Date(text),
  encode: (date) => date.toISOString(),
});
