import type { Clock } from '../src/index.js';
import { afterTurn } from './manual-clock.js';

/** A clock that moves only when something sleeps: nothing else takes any time, so no timer is ever due. */
export class VirtualClock implements Clock {
  /** Every sleep, in milliseconds. */
  readonly sleeps: number[] = [];
  #nowMs: number;

  constructor(start: string) {
    this.#nowMs = Date.parse(start);
  }

  now(): Date {
    return new Date(this.#nowMs);
  }

  elapsedMs(): number {
    return this.#nowMs;
  }

  async sleep(durationMs: number): Promise<void> {
    this.sleeps.push(durationMs);
    this.#nowMs += durationMs;
  }

  after(durationMs: number, work: () => void): () => void {
    return durationMs <= 0 ? afterTurn(work) : () => undefined;
  }
}

/** A clock on which long waits never end, so that attempts wait for each other and no plan ever waits too long. */
export class PatientClock extends VirtualClock {
  override sleep(durationMs: number): Promise<void> {
    return durationMs > 1_000 ? new Promise(() => undefined) : super.sleep(durationMs);
  }
}
