import type { Clock } from '@framework/core';

interface Sleeper {
  /** When it wakes, on the scale of time that was advanced. */
  readonly wakesAtMs: number;
  readonly wake: () => void;
}

/**
 * A clock that stands still until a test advances it, so that waiting costs no time and always ends the same way.
 *
 * ```ts
 * const clock = new VirtualClock();
 * const slept = clock.sleep(60_000);
 * await clock.advance(60_000); // slept has resolved, and what follows it has run
 * ```
 */
export class VirtualClock implements Clock {
  #nowMs: number;
  #advancedMs = 0;
  /** In the order in which they wake; those of one instant in the order in which they fell asleep. */
  readonly #sleepers: Sleeper[] = [];

  /** @param start what {@link now} tells first; default 2026-01-01T00:00:00Z */
  constructor(start: Date = new Date('2026-01-01T00:00:00Z')) {
    this.#nowMs = start.getTime();
  }

  /** How many sleep now. */
  get sleeperCount(): number {
    return this.#sleepers.length;
  }

  now(): Date {
    return new Date(this.#nowMs);
  }

  /** Resolves when the clock was advanced by the duration, or the signal is aborted; at once when it is not above zero. */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    if (!(durationMs > 0) || signal?.aborted === true) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = (): void => {
        signal?.removeEventListener('abort', abort);
        resolve();
      };
      const sleeper: Sleeper = { wakesAtMs: this.#advancedMs + durationMs, wake };
      const abort = (): void => {
        this.#sleepers.splice(this.#sleepers.indexOf(sleeper), 1);
        resolve();
      };
      this.#add(sleeper);
      signal?.addEventListener('abort', abort, { once: true });
    });
  }

  /**
   * Lets time pass: wakes the sleepers in order, each at its own instant, and lets what they continue with run.
   *
   * Who falls asleep meanwhile is woken too when the duration reaches that far. What waits for something else than
   * this clock, such as a database, is not waited for.
   *
   * @throws RangeError when the duration is negative or not a number
   */
  async advance(durationMs: number): Promise<void> {
    if (!(durationMs >= 0)) throw new RangeError(`Time does not pass by ${durationMs} ms: use set(…)`);
    const endMs = this.#advancedMs + durationMs;
    await settled();
    for (let next = this.#nextUntil(endMs); next !== undefined; next = this.#nextUntil(endMs)) {
      this.#pass(next.wakesAtMs);
      next.wake();
      await settled();
    }
    this.#pass(endMs);
  }

  /**
   * Lets time pass until the next sleeper wakes, and lets what it continues with run.
   *
   * @returns false when nobody sleeps: time stands still then
   */
  async wakeNext(): Promise<boolean> {
    const next = this.#sleepers.shift();
    if (next === undefined) return false;
    this.#pass(next.wakesAtMs);
    next.wake();
    await settled();
    return true;
  }

  /** Corrects the time of day, forwards or backwards; wakes nobody, because durations do not change by that. */
  set(now: Date): void {
    this.#nowMs = now.getTime();
  }

  #add(sleeper: Sleeper): void {
    const later = this.#sleepers.findIndex(({ wakesAtMs }) => wakesAtMs > sleeper.wakesAtMs);
    this.#sleepers.splice(later === -1 ? this.#sleepers.length : later, 0, sleeper);
  }

  #nextUntil(endMs: number): Sleeper | undefined {
    const [next] = this.#sleepers;
    return next !== undefined && next.wakesAtMs <= endMs ? this.#sleepers.shift() : undefined;
  }

  #pass(untilMs: number): void {
    this.#nowMs += untilMs - this.#advancedMs;
    this.#advancedMs = untilMs;
  }
}

/** Lets every continuation run that is due: promises' callbacks come before the next turn of the event loop. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
