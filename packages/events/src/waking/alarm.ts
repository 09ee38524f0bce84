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
      const sleeping = new AbortController();
      const rung = new Promise<void>((resolve) => (this.#wake = resolve));
      await (durationMs === undefined
        ? rung
        : Promise.race([rung, this.#clock.sleep(durationMs, sleeping.signal)]));
      this.#wake = undefined;
      sleeping.abort();
    }
    const wasRung = this.#rung;
    this.#rung = false;
    return wasRung;
  }
}
