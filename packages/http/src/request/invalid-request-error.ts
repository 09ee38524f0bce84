import { type ProblemDetails, ProblemError } from '../problem/problem-error.js';

/** The problems with a request that are found before any action runs. */
export type RequestFaultCode =
  | 'bad-request'
  | 'body-too-large'
  | 'unsupported-media-type'
  | 'headers-too-large'
  | 'request-timeout'
  | 'expectation-failed'
  | 'not-found'
  | 'method-not-allowed';

/** A malformed request was refused before any action ran. */
export class InvalidRequestError extends ProblemError {
  constructor(code: RequestFaultCode, message: string, details: ProblemDetails = {}) {
    super(code, message, details);
  }
}
