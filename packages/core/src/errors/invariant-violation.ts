import { FrameworkException } from './framework-exception.js';

/** A bug in the calling code or in the framework: never retried, to be fixed where it is thrown. */
export class InvariantViolation extends FrameworkException {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('invariant-violation', message, options);
  }
}
