import * as z from 'zod';

import { JsonNumber } from '../request/exact-json.js';

const decimalGrammar = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/**
 * The schema of a decimal in a request: a JSON string or a JSON number, read exactly as written. Both follow the grammar of JSON numbers.
 *
 * @param parse makes the value from the text. It must limit the exponent, because a text of ten characters may stand for a billion digits
 */
export function decimalField<T>(parse: (text: string) => T): z.ZodType<T> {
  return z
    .union(
      [
        z.string(),
        z.number().transform(String),
        z.instanceof(JsonNumber).transform((number) => JsonNumber.sourceOf(number)),
      ],
      { error: 'must be a decimal' },
    )
    .pipe(z.string().regex(decimalGrammar, 'must be a decimal such as "25.50"'))
    .transform(parse)
    .meta({
      type: ['string', 'number'],
      pattern: decimalGrammar.source,
      description: 'A decimal, exact as written, whether as a string or as a number.',
      example: '25.50',
    });
}

/** The schema of free text in a request: any text that the database can store. */
export const textField = z
  .string({ error: 'must be a string' })
  .refine((text) => text.isWellFormed() && !text.includes('\u0000'), 'contains an invalid character')
  .meta({ pattern: String.raw`^[^\u0000\uD800-\uDFFF]*$` });

/** A UUID of any version. The pattern has no flags, because patterns in an OpenAPI document cannot have any. */
const uuid = /^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;

/** The schema of a UUID of any version in upper or lower case; the result is in lower case. */
export const uuidField = z
  .string({ error: 'must be a UUID' })
  .regex(uuid, 'must be a UUID')
  .toLowerCase()
  .meta({ format: 'uuid', example: '0198c5a2-7b7e-7000-8000-5d2f4a6b8c0d' });

const limitMax = 100;
const limitDefault = 20;

/** The query field that limits a page: 1 to 100 items, by default 20. */
export const limitField = z
  .string()
  .regex(/^([1-9]\d?|100)$/, `must be a whole number from 1 to ${limitMax}`)
  .transform(Number)
  .default(limitDefault)
  .meta({
    type: 'integer',
    minimum: 1,
    maximum: limitMax,
    description: 'The maximum number of items on the page.',
  });

/** Documents the cursor of a list. */
export const cursorNote = 'The `next` of the previous page, unchanged. Omit it for the first page.';

/** The schema of one page of a list. */
export function pageOf<Item extends z.ZodType>(item: Item) {
  return z.object({
    items: z.array(item),
    next: z
      .string()
      .nullable()
      .meta({ description: 'Pass it as `cursor` to get the next page; null on the last page.' }),
  });
}
