import { FrameworkError } from './framework-error.js';

/** A bug in the calling code or in the framework: never retried, to be fixed where it is thrown. */
export class InvariantViolationError extends FrameworkError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('invariant-violation', message, options);
  }
}
