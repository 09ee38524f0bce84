import { z } from '@hono/zod-openapi';

const limitMax = 100;
const limitDefault = 20;

/** The query field that bounds a page: 1 to 100 items, 20 unless said otherwise. */
export const limitField = z
  .string()
  .regex(/^([1-9]\d?|100)$/, `must be a whole number from 1 to ${limitMax}`)
  .transform(Number)
  .default(limitDefault)
  .openapi({ type: 'integer', minimum: 1, maximum: limitMax, description: 'Items of the page at most.' });

/** What a list's cursor is, for its documentation. */
export const cursorNote = 'The `next` of the page before, unchanged. Without it: the first page.';
