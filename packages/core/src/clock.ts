import { outsideRequests } from './outside-requests.js';

/** The longest time that a timer can wait: a longer one would end at once. */
export const timerMaxMs: number = 2 ** 31 - 1;

/** The port through which the framework and its users read the time and wait; nothing else of them does. */
export interface Clock {
  /** The current instant, with millisecond precision; it may jump. */
  now(): Date;
  /** Milliseconds since any fixed instant, which only grow: what durations are measured by. */
  elapsedMs(): number;
  /** Resolves after a duration in milliseconds, or as soon as the signal is aborted. */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void>;
  /**
   * Calls back once after a duration in milliseconds, outside the async context of any request; after 0, as soon as what is
   * ready now has run.
   *
   * @returns what cancels that
   */
  after(durationMs: number, work: () => void): () => void;
}

/** The computer's own clock. */
export const systemClock: Clock = {
  now: () => new Date(),
  elapsedMs: () => performance.now(),
  sleep: (durationMs, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const timer = setTimeout(done, Math.max(0, Math.min(durationMs, timerMaxMs)));
      signal?.addEventListener('abort', done, { once: true });
      function done(): void {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      }
    }),
  after: (durationMs, work) => outsideRequests(() => callBack(durationMs, work)),
};

function callBack(durationMs: number, work: () => void): () => void {
  if (durationMs <= 0) {
    const immediate = setImmediate(work);
    return () => clearImmediate(immediate);
  }
  const timeout = setTimeout(work, Math.min(durationMs, timerMaxMs));
  return () => clearTimeout(timeout);
}
