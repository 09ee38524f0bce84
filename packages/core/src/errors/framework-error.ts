/**
 * Every error code of the framework, and whether a retry can help.
 *
 * The codes are API: their meaning never changes, and `docs/reference/errors.md` lists them all.
 */
export const errorCodes = {
  'stale-record': true,
  'transient-storage': true,
  'shard-unavailable': true,
  'databases-closed': false,
  'commit-outcome-unknown': true,
  'partial-commit': false,
  'cross-shard': false,
  'entity-not-found': false,
  'not-unique': false,
  'unknown-shard': false,
  'no-usable-shard': false,
  'shard-undetermined': false,
  'constraint-violation': false,
  'storage-failure': false,
  'nested-transaction': false,
  'transaction-over': false,
  'unknown-action': false,
  'nested-execution': false,
  'access-denied': false,
  'plan-unavailable': false,
  'plan-sealed': false,
  'staged-twice': false,
  'invalid-params': false,
  'invalid-idempotency-key': false,
  'idempotency-key-reused': false,
  'invalid-id': false,
  'invalid-shard': false,
  'invalid-cursor': false,
  'invalid-page-limit': false,
  'invalid-model': false,
  'invalid-configuration': false,
  'unstorable-value': false,
  'unreadable-value': false,
  'unreadable-event': false,
  'unreadable-message': false,
  'unknown-event-type': false,
  'limit-exceeded': false,
  'handler-timeout': true,
  'retry-later': true,
  'handler-names': false,
  'handler-in-use': false,
  'unknown-handler': false,
  'history-changed': true,
  'broker-unavailable': true,
  'message-refused': false,
  'operator-request': false,
  'invariant-violation': false,
} as const satisfies Readonly<Record<string, boolean>>;

/** The closed union of the framework's error codes. */
export type ErrorCode = keyof typeof errorCodes;

const brand: symbol = Symbol.for('@framework/core/exception');

/**
 * The base class of all errors of the framework: it has a code to branch on, and says whether a retry can help.
 *
 * Recognise one with {@link FrameworkError.is}, which also accepts errors from another copy of this package.
 */
export abstract class FrameworkError extends Error {
  /** A stable identifier of what went wrong. */
  readonly code: ErrorCode;
  /** Whether the same call can succeed when it is repeated. */
  readonly retryable: boolean;

  constructor(code: ErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.retryable = errorCodes[code];
    Object.defineProperty(this, brand, { value: true });
  }

  /** Tells whether a value is an error of the framework, by its brand. Never throws. */
  static is(value: unknown): value is FrameworkError {
    try {
      return typeof value === 'object' && value !== null && brand in value;
    } catch {
      // The value is a proxy that refuses the check.
      return false;
    }
  }

  /**
   * Finds the framework's error in a chain of causes, because query builders wrap errors of their driver. Never throws,
   * whatever the value is.
   *
   * @returns the outermost one among the first 8 links, or `undefined`
   */
  static find(error: unknown): FrameworkError | undefined {
    let link = error;
    for (let depth = 0; depth < 8 && link !== undefined && link !== null; depth++) {
      if (FrameworkError.is(link)) return link;
      link = causeOf(link);
    }
    return undefined;
  }
}

/** An error may be a proxy, or have a `cause` getter that throws. */
function causeOf(error: unknown): unknown {
  try {
    return error instanceof Error ? error.cause : undefined;
  } catch {
    return undefined;
  }
}

/** A bug in the calling code or in the framework. Never retried, because only a change of the code can help. */
export class InvariantViolationError extends FrameworkError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('invariant-violation', message, options);
  }
}
