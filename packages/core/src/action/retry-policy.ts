import { timerMaxMs } from '../clock.js';
import type { RangesOf } from '../config/settings.js';
import { FrameworkError } from '../errors/framework-error.js';

/** When a failed action runs again, and how long it waits before. */
export interface RetryPolicy {
  /**
   * How often the action runs at most, the first time included. With group commit it runs once more where it depends on
   * a model of another action that was not written: that is no failure of its own. Default 5.
   */
  readonly attemptsMax: number;
  /** The longest wait before the second attempt; it doubles with each one. Default 10. */
  readonly backoffBaseMs: number;
  /** The longest wait before any attempt. Default 1,000. */
  readonly backoffMaxMs: number;
  /**
   * Tells after which errors another attempt can succeed. Default: stale records and transient storage errors. After an
   * unknown outcome, the log is asked again before the action is performed again; a partial commit is never retried.
   */
  readonly isRetryable: (error: unknown) => boolean;
}

export const defaultRetryPolicy: RetryPolicy = {
  attemptsMax: 5,
  backoffBaseMs: 10,
  backoffMaxMs: 1_000,
  isRetryable: (error) => {
    const code = FrameworkError.find(error)?.code;
    return code === 'stale-record' || code === 'transient-storage';
  },
};

export const retryRanges: RangesOf<RetryPolicy> = {
  attemptsMax: { min: 1, max: 10_000 },
  backoffBaseMs: { min: 0, max: timerMaxMs },
  backoffMaxMs: { min: 0, max: timerMaxMs },
};

/**
 * How long to wait before the next attempt: exponential backoff with full jitter.
 *
 * @param attempt the attempt that failed, from 1
 * @param random a number from 0 to 1
 * @see https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 */
export function backoffMs(policy: RetryPolicy, attempt: number, random: number): number {
  return random * Math.min(policy.backoffMaxMs, policy.backoffBaseMs * 2 ** (attempt - 1));
}
