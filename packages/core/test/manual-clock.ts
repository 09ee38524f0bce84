import type { Clock } from '../src/index.js';

/** A clock that stands still, and whose sleepers wake when a test says so. */
export class ManualClock implements Clock {
  /** How often somebody slept. */
  sleeps = 0;
  readonly #sleepers: (() => void)[] = [];

  now(): Date {
    return new Date('2026-03-03T03:03:03Z');
  }

  sleep(): Promise<void> {
    this.sleeps++;
    return new Promise((resolve) => this.#sleepers.push(resolve));
  }

  /** Wakes all that sleep now, and lets what they continue with run. */
  async wake(): Promise<void> {
    for (const wake of this.#sleepers.splice(0)) wake();
    await settled();
  }
}

/** Lets everything run that waits for nothing but promises and the end of a turn of the event loop. */
export async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
