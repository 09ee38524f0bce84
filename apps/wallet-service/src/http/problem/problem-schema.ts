import { z } from '@hono/zod-openapi';

/** The schema of an error's body: problem details (RFC 9457) with a code to branch on. */
export const problemSchema = z
  .object({
    type: z.string().openapi({ example: 'urn:problem-type:wallet-service:insufficient-funds' }),
    title: z.string().openapi({ example: 'The balance does not cover the amount' }),
    status: z.int().openapi({ example: 422 }),
    detail: z.string().openapi({ description: 'What happened this time.' }),
    code: z.string().openapi({ description: 'What to branch on.', example: 'insufficient-funds' }),
    instance: z.string().openapi({
      description: 'This occurrence, by the id of the request, which the log knows too.',
      example: 'urn:uuid:5f0c7f0e-6a3c-4f0e-9a53-2f6d5c8e1b7a',
    }),
    errors: z
      .array(
        z.object({
          pointer: z.string().openapi({
            description:
              'A JSON pointer into the body, or `path/…`, `query/…` or `header/…` with the name of a parameter.',
            example: '#/amount',
          }),
          message: z.string(),
        }),
      )
      .readonly()
      .optional()
      .openapi({ description: 'What is wrong where, when the shape of the request is.' }),
  })
  .openapi('Problem');

/** An error's body. */
export type ProblemBody = z.infer<typeof problemSchema>;
