/** How failed attempts of a handler are repeated: exponential backoff with full jitter. */
export interface HandlerRetry {
  /** How often an event is tried before it is a dead letter, the first time included. Default 10. */
  readonly attemptsMax: number;
  /** The longest wait before the second attempt; it doubles with each one. Default 500. */
  readonly backoffBaseMs: number;
  /** The longest wait before any attempt. Default 300,000. */
  readonly backoffMaxMs: number;
  /**
   * The longest wait after a call that was no attempt, because storage or a shard could not serve, where `backoffMaxMs` is not
   * less: so long after the outage the event is tried again at the latest. Default 5,000.
   */
  readonly outageBackoffMaxMs: number;
}

/**
 * How long to wait after a failed attempt.
 *
 * @param attempts how many were made, from 1
 * @param random a number from 0 to 1
 * @see https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 */
export function retryAfterMs(retry: HandlerRetry, attempts: number, random: number): number {
  return random * Math.min(retry.backoffMaxMs, retry.backoffBaseMs * 2 ** (attempts - 1));
}

/**
 * How long to wait after a call that was no attempt: attempts that failed before do not lengthen it.
 *
 * @param calls how many such calls were made, from 1
 * @param random a number from 0 to 1
 */
export function outageRetryAfterMs(retry: HandlerRetry, calls: number, random: number): number {
  const backoffMaxMs = Math.min(retry.backoffMaxMs, retry.outageBackoffMaxMs);
  return retryAfterMs({ ...retry, backoffMaxMs }, calls, random);
}
