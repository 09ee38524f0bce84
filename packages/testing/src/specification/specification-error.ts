/**
 * Which fault it was: `dead-letter` (a handler gave an event up), `neverIdle` (handlers keep each other going),
 * `unwanted-event` (no handler wants the event that is to be handled), `unknown-model` (a model that the
 * specification does not list).
 */
export type SpecificationErrorCode = 'dead-letter' | 'neverIdle' | 'unwanted-event' | 'unknown-model';

/** Says why a specification cannot go on, and what to do about it. */
export class SpecificationError extends Error {
  override readonly name = 'SpecificationError';
  readonly code: SpecificationErrorCode;

  constructor(code: SpecificationErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
