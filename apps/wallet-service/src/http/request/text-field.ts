import { z } from '@hono/zod-openapi';

/** The schema of free text in a request: any that the database can hold. */
export const textField = z
  .string({ error: 'must be a string' })
  .refine((text) => text.isWellFormed() && !text.includes('\u0000'), 'has a character that is not text')
  .openapi({ pattern: String.raw`^[^\u0000\uD800-\uDFFF]*$` });
