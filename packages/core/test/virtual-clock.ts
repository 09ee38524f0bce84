import type { Clock } from '../src/index.js';

/** A clock that moves only when somebody sleeps by it. */
export class VirtualClock implements Clock {
  /** Every duration that was slept, in milliseconds. */
  readonly sleeps: number[] = [];
  #nowMs: number;

  constructor(start: string) {
    this.#nowMs = Date.parse(start);
  }

  now(): Date {
    return new Date(this.#nowMs);
  }

  async sleep(durationMs: number): Promise<void> {
    this.sleeps.push(durationMs);
    this.#nowMs += durationMs;
  }
}
