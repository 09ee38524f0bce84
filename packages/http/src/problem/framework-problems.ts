/** How one kind of problem is answered. */
export interface ProblemKind {
  /** The status of the answer, from 400 to 599. */
  readonly status: number;
  /** Names the kind of problem; the same for every occurrence. */
  readonly title: string;
  /** The public `code`. Default: the name of the kind. */
  readonly code?: string;
  /** Replaces the error's own message, for errors whose message is meant for operators. Default: the message. */
  readonly detail?: string;
  /** How much later a repeat may succeed, in seconds, for `Retry-After`. Default: there is no such header. */
  readonly retryAfterSeconds?: number;
}

/** Kinds of problems by name. */
export type ProblemKinds = Readonly<Record<string, ProblemKind>>;

/** The problems that every service can answer with. */
export const frameworkProblems = {
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
  'precondition-failed': { status: 412, title: 'The version is another one than expected' },

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

  'stale-record': {
    status: 409,
    title: 'Concurrent modification',
    detail: 'Other requests kept changing the same data at the same time. Nothing was written; try again.',
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
      'The connection was lost while the change was being committed. Repeat the request with the same Idempotency-Key; without a key, read the data first.',
  },
  'audit-unavailable': {
    status: 503,
    title: 'The audit log is unavailable',
    detail: 'The service cannot record what it does at present. Nothing was written; try again.',
    retryAfterSeconds: 1,
  },
  internal: { status: 500, title: 'Internal error', detail: 'The request could not be served.' },
} as const satisfies ProblemKinds;

/** The name of a problem that every service can answer with. */
export type FrameworkProblem = keyof typeof frameworkProblems;
