import type { Clock } from '@framework/core';

/** The clock of delivery: one whose sleeps can end early, and whose durations do not jump with the time of day. */
export interface DeliveryClock extends Clock {
  /** Resolves after a duration, or soon after the signal is aborted; a clock may ignore the signal. */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void>;
  /** Milliseconds since any fixed instant; they only grow. Default: those of {@link Clock.now}. */
  elapsedMs?(): number;
}

/** The computer's own clock. */
export const systemDeliveryClock: DeliveryClock = {
  now: () => new Date(),
  elapsedMs: () => performance.now(),
  sleep: (durationMs, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const timer = setTimeout(done, Math.min(durationMs, 2 ** 31 - 1));
      signal?.addEventListener('abort', done, { once: true });
      function done(): void {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      }
    }),
};

/** What durations are measured by. */
export function elapsedMs(clock: DeliveryClock): number {
  return clock.elapsedMs?.() ?? clock.now().getTime();
}
