import type { Clock } from '../src/index.js';

interface Timer {
  readonly dueMs: number;
  readonly work: () => void;
}

/** A clock that stands still, and whose sleepers wake on request. */
export class ManualClock implements Clock {
  /** How often sleep was called. */
  sleeps = 0;
  readonly #sleepers: (() => void)[] = [];
  readonly #timers = new Set<Timer>();
  #elapsedMs = 0;

  now(): Date {
    return new Date('2026-03-03T03:03:03Z');
  }

  elapsedMs(): number {
    return this.#elapsedMs;
  }

  /** How many timers run. */
  get timerCount(): number {
    return this.#timers.size;
  }

  sleep(): Promise<void> {
    this.sleeps++;
    return new Promise((resolve) => this.#sleepers.push(resolve));
  }

  after(durationMs: number, work: () => void): () => void {
    if (durationMs <= 0) return afterTurn(work);
    const timer = { dueMs: this.#elapsedMs + durationMs, work };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Wakes all current sleepers, and lets their continuations run. */
  async wake(): Promise<void> {
    for (const wake of this.#sleepers.splice(0)) wake();
    await settled();
  }

  /** Lets time pass for timers, and lets what they start run; wakes no sleepers. */
  async pass(durationMs: number): Promise<void> {
    this.#elapsedMs += durationMs;
    for (const timer of this.#timers) {
      if (timer.dueMs > this.#elapsedMs) continue;
      this.#timers.delete(timer);
      timer.work();
    }
    await settled();
  }
}

/** Calls back after one turn of the event loop, as every clock does for a duration of zero. */
export function afterTurn(work: () => void): () => void {
  const immediate = setImmediate(work);
  return () => clearImmediate(immediate);
}

/** Lets everything run that waits only for promises and the end of a turn of the event loop. */
export async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
