/** One fault in the shape of a request. */
export interface RequestFault {
  /**
   * The position: `#/amount` in the body (a JSON pointer as URI fragment, RFC 6901), elsewhere `path/id`, `query/limit` or
   * `header/Idempotency-Key`.
   */
  readonly pointer: string;
  readonly message: string;
}

/** What an answer says besides the code and the message of its problem. */
export interface ProblemDetails extends ErrorOptions {
  /** The faults of a malformed request. Default: none. */
  readonly faults?: readonly RequestFault[];
  /** Further headers of the answer, such as `www-authenticate`. Default: none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** How much later a repeat may succeed, in whole seconds, at least 1. Default: what the table of problems says. */
  readonly retryAfterSeconds?: number;
}

/**
 * Ends a request with a problem document: the error's code names an entry in the table of problems.
 *
 * An application's errors need not extend it, unless their answers have headers or faults of their own: any error whose `code` the
 * application's table contains ends a request in the same way.
 */
export class ProblemError extends Error {
  readonly code: string;
  readonly faults: readonly RequestFault[];
  readonly headers: Readonly<Record<string, string>>;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: string, message: string, details: ProblemDetails = {}) {
    const { faults = [], headers = {}, retryAfterSeconds, ...options } = details;
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.faults = faults;
    this.headers = headers;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
