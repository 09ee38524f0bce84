import type { Clock } from '@framework/core';

/** What one loop waits on: ends a wait early when it is rung, also when it was rung before the wait began. */
export class Alarm {
  readonly #clock: Clock;
  #rung = false;
  #wake: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the running wait, or the next one at once. */
  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** Waits until it is rung, or for a duration in milliseconds when one is given; tells whether it was rung. */
  async wait(durationMs?: number): Promise<boolean> {
    if (!this.#rung) {
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
    const wasRung = this.#rung;
    this.#rung = false;
    return wasRung;
  }
}
