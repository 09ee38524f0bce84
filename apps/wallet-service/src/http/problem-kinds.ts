import { z } from '@hono/zod-openapi';

import type { WalletErrorCode } from '../wallet/wallet-error.js';

/** How one kind of problem is answered. */
export interface ProblemKind {
  readonly status:
    400 | 401 | 403 | 404 | 405 | 408 | 409 | 412 | 413 | 415 | 417 | 422 | 429 | 431 | 500 | 503 | 504;
  /** Names the kind of problem; the same for every occurrence. */
  readonly title: string;
  /** The public `code`, if it differs from the name of the kind. */
  readonly code?: string;
  /** Replaces the error's own message, which is for operators. */
  readonly detail?: string;
  /** How many seconds later a retry may succeed. */
  readonly retryAfterSeconds?: number;
}

/** The codes of faults that the HTTP layer itself finds before any action runs. */
export type RequestFaultCode =
  | 'bad-request'
  | 'body-too-large'
  | 'unsupported-media-type'
  | 'headers-too-large'
  | 'request-timeout'
  | 'expectation-failed'
  | 'not-found'
  | 'method-not-allowed';

/** The HTTP layer's own problems, besides those of the wallet's rules. */
type EntryProblem =
  | RequestFaultCode
  | 'unauthorized'
  | 'forbidden'
  | 'keys-unavailable'
  | 'wallet-not-found'
  | 'transfer-not-found'
  | 'stale-record'
  | 'idempotency-key-reused'
  | 'too-many-requests'
  | 'shard-unavailable'
  | 'outcome-unknown'
  | 'audit-unavailable'
  | 'internal';

/** The names of all kinds of problems. */
export type ProblemCode = WalletErrorCode | EntryProblem;

/** Every problem that this service answers, with its status: the only place that maps errors to HTTP. */
export const problemKinds: Readonly<Record<ProblemCode, ProblemKind>> = {
  'bad-request': { status: 400, title: 'The request is malformed' },
  'body-too-large': { status: 413, code: 'bad-request', title: 'The body is too large' },
  'unsupported-media-type': { status: 415, code: 'bad-request', title: 'The body is not application/json' },
  'headers-too-large': {
    status: 431,
    code: 'bad-request',
    title: 'The request line and headers are too large',
  },
  'request-timeout': { status: 408, code: 'bad-request', title: 'The request took too long to arrive' },
  'expectation-failed': { status: 417, code: 'bad-request', title: 'The expectation cannot be met' },
  'not-found': { status: 404, title: 'There is nothing at this address' },
  'method-not-allowed': { status: 405, title: 'The address does not support this method' },

  unauthorized: {
    status: 401,
    title: 'A valid token is needed',
    detail: 'Send a valid bearer token in the header Authorization.',
  },
  forbidden: { status: 403, title: 'The token does not allow this' },
  'keys-unavailable': {
    status: 503,
    title: 'Tokens cannot be verified at the moment',
    detail:
      'The service has no keys yet with which to verify tokens. Nothing was read or written; try again.',
    retryAfterSeconds: 1,
  },

  'invalid-amount': { status: 422, title: 'The amount is not acceptable' },
  'unknown-currency': { status: 422, title: 'The currency is unknown' },
  'currency-mismatch': { status: 422, title: 'The wallets hold different currencies' },
  'same-wallet': { status: 422, title: 'Source and destination are the same' },
  'insufficient-funds': { status: 422, title: 'The balance does not cover the amount' },
  'wallet-closed': { status: 409, title: 'The wallet is closed' },
  'precondition-failed': { status: 412, title: 'The version is another one than expected' },
  'wallet-not-found': { status: 404, title: 'The wallet does not exist' },
  'transfer-not-found': { status: 404, title: 'The transfer does not exist' },

  'stale-record': {
    status: 409,
    title: 'Concurrent modification',
    detail: 'Other requests kept changing the wallet at the same time. Nothing was written; try again.',
  },
  'idempotency-key-reused': {
    status: 422,
    title: 'The idempotency key belongs to another request',
    detail: 'Repeat a request unchanged, and use a new key for every other request. Nothing was written.',
  },
  'too-many-requests': { status: 429, title: 'The client sends too many requests', retryAfterSeconds: 1 },
  'shard-unavailable': {
    status: 503,
    title: 'The shard is unavailable',
    detail: 'The shard cannot be reached or is overloaded. Nothing was written; try again.',
    retryAfterSeconds: 1,
  },
  'outcome-unknown': {
    status: 504,
    title: 'The outcome is unknown',
    detail:
      'The connection was lost while the change was being committed. Repeat the request with the same Idempotency-Key; without a key, read the wallet first.',
  },
  'audit-unavailable': {
    status: 503,
    title: 'The audit log is unavailable',
    detail: 'The service cannot record what it does at present. Nothing was written; try again.',
    retryAfterSeconds: 1,
  },
  internal: { status: 500, title: 'Internal error', detail: 'The request could not be served.' },
};

/** The codes that clients branch on. */
const codes = [...new Set(Object.entries(problemKinds).map(([name, { code }]) => code ?? name))];

/** The schema of an error's body: problem details (RFC 9457) with a code to branch on. */
export const problemSchema = z
  .object({
    type: z.string().openapi({ example: 'urn:problem-type:wallet-service:insufficient-funds' }),
    title: z.string().openapi({ example: 'The balance does not cover the amount' }),
    status: z.int().openapi({ example: 422 }),
    detail: z.string().openapi({ description: 'What happened this time.' }),
    code: z.enum(codes).openapi({
      description: 'The code to branch on. A later version may have more of them.',
      example: 'insufficient-funds',
    }),
    instance: z.string().openapi({
      description: 'Identifies this occurrence by the id of the request, which also appears in the log.',
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
      .openapi({ description: 'The faults and their positions, when the request is malformed.' }),
  })
  .openapi('Problem');

/** An error's body. */
export type ProblemBody = z.infer<typeof problemSchema>;
