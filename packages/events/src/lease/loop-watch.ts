import type { Clock } from '@framework/core';

/**
 * Knows when the event loop of the process stood still for so long that leases may have been lost by that alone: no answer of a
 * database could have kept them.
 */
export class LoopWatch {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  #seenMs: number;
  #stoodMs = -Infinity;

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#seenMs = clock.elapsedMs();
  }

  /** Looks now and then, until the signal is aborted. */
  async run(ended: AbortSignal): Promise<void> {
    this.#seenMs = this.#clock.elapsedMs();
    while (!ended.aborted) {
      await this.#clock.sleep(this.#leaseMs / 3, ended);
      this.now();
    }
  }

  /** This instant, to be asked about with {@link LoopWatch.stoodSince} later. */
  now(): number {
    const nowMs = this.#clock.elapsedMs();
    // Renewals begin when a third of a lease has passed: two more are too long.
    if (nowMs - this.#seenMs > (this.#leaseMs * 2) / 3) this.#stoodMs = nowMs;
    this.#seenMs = nowMs;
    return nowMs;
  }

  /** Whether the event loop has stood for so long after an instant. */
  stoodSince(instantMs: number): boolean {
    this.now();
    return this.#stoodMs > instantMs;
  }
}
