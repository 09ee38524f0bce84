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

  /** Waits after a failure: at least half of the time that is due, so that no loop is ever tight. */
  async failed(signal?: AbortSignal): Promise<void> {
    const dueMs = Math.min(this.#maxMs, this.#baseMs * 2 ** Math.min(this.#failures++, 30));
    await this.#clock.sleep(dueMs * (0.5 + this.#random() / 2), signal);
  }
}
