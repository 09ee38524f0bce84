/** How failed attempts of a handler are repeated: exponential backoff with full jitter. */
export interface HandlerRetry {
  /** How often an event is tried before it is a dead letter, the first time included. Default 10. */
  readonly attemptsMax: number;
  /** The longest wait before the second attempt; it doubles with each one. Default 500. */
  readonly backoffBaseMs: number;
  /** The longest wait before any attempt. Default 300,000. */
  readonly backoffMaxMs: number;
}

/**
 * How long to wait before the next attempt.
 *
 * @param attempts how many were made, from 1
 * @param random a number from 0 to 1
 * @see https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 */
export function retryAfterMs(retry: HandlerRetry, attempts: number, random: number): number {
  return random * Math.min(retry.backoffMaxMs, retry.backoffBaseMs * 2 ** Math.min(attempts - 1, 50));
}
