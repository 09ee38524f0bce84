import type { Clock } from '@framework/core';

/** Repeats what a database refuses for now: waits longer each time, and starts anew after a success. */
export class StoreBackoff {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #baseMs: number;
  readonly #maxMs: number;
  #failures = 0;

  constructor(options: {
    readonly clock: Clock;
    readonly random: () => number;
    readonly baseMs: number;
    readonly maxMs: number;
  }) {
    this.#clock = options.clock;
    this.#random = options.random;
    this.#baseMs = options.baseMs;
    this.#maxMs = options.maxMs;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  /** How long to wait after a failure: at least half of the time that is due, so that no loop is ever tight. */
  failedMs(): number {
    const dueMs = Math.min(this.#maxMs, this.#baseMs * 2 ** this.#failures++);
    return dueMs * (0.5 + this.#random() / 2);
  }

  /** Waits as long as {@link StoreBackoff.failedMs} says, or until the signal is aborted. */
  async failed(signal?: AbortSignal): Promise<void> {
    await this.#clock.sleep(this.failedMs(), signal);
  }
}
