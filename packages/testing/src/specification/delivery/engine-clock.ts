import type { Clock } from '@framework/core';
import type { VirtualClock } from '../../virtual-clock.js';

/** A virtual clock as delivery has it, which tells delivery's own waiting from that of handlers and actions. */
export class EngineClock implements Clock {
  readonly #clock: VirtualClock;
  #sleeperCount = 0;

  constructor(clock: VirtualClock) {
    this.#clock = clock;
  }

  /** How many others sleep: handlers, and the actions that they execute. */
  get otherSleeperCount(): number {
    return this.#clock.sleeperCount - this.#sleeperCount;
  }

  now(): Date {
    return this.#clock.now();
  }

  elapsedMs(): number {
    return this.#clock.elapsedMs();
  }

  after(durationMs: number, work: () => void): () => void {
    return this.#clock.after(durationMs, work);
  }

  async sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    this.#sleeperCount++;
    await this.#clock.sleep(durationMs, signal);
    this.#sleeperCount--;
  }
}
