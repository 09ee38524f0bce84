import type { Clock } from '@framework/core';

import { type WorkerContext, storeBackoff } from '../worker-context.js';

/** What one loop waits on: ends a wait early when it is given, also when it was given before the wait began. */
export class WakeSignal {
  readonly #clock: Clock;
  #woken = false;
  #wake: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the running wait, or the next one at once. */
  wake(): void {
    this.#woken = true;
    this.#wake?.();
  }

  /** Waits until somebody wakes it, or for a duration in milliseconds when there is one; tells whether somebody did. */
  async wait(durationMs?: number): Promise<boolean> {
    if (!this.#woken) {
      await new Promise<void>((resolve) => {
        // Not a sleep, which would have to be aborted: that collects a stack trace, at each wait of each loop.
        const cancel = durationMs === undefined ? undefined : this.#clock.after(durationMs, resolve);
        this.#wake = () => {
          cancel?.();
          resolve();
        };
      });
      this.#wake = undefined;
    }
    const wasWoken = this.#woken;
    this.#woken = false;
    return wasWoken;
  }
}

/** Resolves when a signal is aborted; at once when it was before: then it tells nobody any more. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve());
  });
}

/**
 * Does what the database refuses for now again, later each time, until it is done.
 *
 * @returns what the work gave; `undefined` when the signal was aborted before it succeeded
 */
export async function untilDone<T>(
  context: WorkerContext,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T | undefined> {
  const backoff = storeBackoff(context);
  while (!signal.aborted) {
    try {
      return await work();
    } catch (error) {
      context.onError(error);
      await backoff.failed(signal);
    }
  }
  return undefined;
}

/** A hook that reports an error must not cause another one, neither at once nor later. */
export function quiet<Report>(hook: (report: Report) => unknown): (report: Report) => void {
  return (report) => {
    // There is nobody left to tell.
    void new Promise((resolve) => resolve(hook(report))).catch(() => undefined);
  };
}
