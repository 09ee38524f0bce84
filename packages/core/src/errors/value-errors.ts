import { FrameworkError } from './framework-error.js';

/** A string is not an id of the wanted kind. */
export class InvalidIdError extends FrameworkError {
  constructor(value: unknown, expected: string) {
    super('invalid-id', `'${String(value).slice(0, 64)}' is not ${expected}`);
  }
}

/** A group or member is out of range. */
export class InvalidShardError extends FrameworkError {
  constructor(part: 'group' | 'member', value: number, maximum: number) {
    super('invalid-shard', `${part} ${value} is not an integer from 0 to ${maximum}`);
  }
}

/** The `after` of a page is not the `next` of the page before. */
export class InvalidCursorError extends FrameworkError {
  constructor(cursor: string) {
    super(
      'invalid-cursor',
      `'${cursor.slice(0, 64)}' is not a cursor: pass the next of the page before, unchanged`,
    );
  }
}

/** A model was built without a field that it must have, or with a version that is none. */
export class InvalidModelError extends FrameworkError {
  constructor(message: string) {
    super('invalid-model', message);
  }
}

/** A value would not come back from the database as it was staged; nothing was written. */
export class UnstorableValueError extends FrameworkError {
  /** Where the value stands, such as `Wallet.balance` or `WalletCreatedEvent.amount`. */
  readonly path: string;
  /** What is wrong with it, and what to do. */
  readonly reason: string;

  constructor(path: string, reason: string, options?: { readonly cause?: unknown }) {
    super('unstorable-value', `${path} cannot be stored exactly: ${reason}`, options);
    this.path = path;
    this.reason = reason;
  }
}
