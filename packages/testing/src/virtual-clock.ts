import { type Clock, systemClock } from '@framework/core';

/** What happens at an instant: a sleeper wakes, or a callback is called. */
interface Appointment {
  /** The instant, in milliseconds of this clock's time. */
  readonly atMs: number;
  readonly happen: () => void;
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
  #sleeperCount = 0;
  /** The appointments in the order in which they happen; those of one instant in the order in which they were made. */
  readonly #appointments: Appointment[] = [];

  /** @param start the initial value of {@link now}; default 2026-01-01T00:00:00Z */
  constructor(start: Date = new Date('2026-01-01T00:00:00Z')) {
    this.#nowMs = start.getTime();
  }

  /** The number of current sleepers. */
  get sleeperCount(): number {
    return this.#sleeperCount;
  }

  /** The virtual time of day, which {@link advance} and {@link wakeNext} let pass, and {@link set} corrects. */
  now(): Date {
    return new Date(this.#nowMs);
  }

  /** How much time has passed by advancing, whatever the time of day. */
  elapsedMs(): number {
    return this.#advancedMs;
  }

  /**
   * Resolves when the clock has been advanced by the duration, or the signal is aborted; at once if the duration is not above
   * zero.
   */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    if (!(durationMs > 0) || signal?.aborted === true) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#sleeperCount--;
        signal?.removeEventListener('abort', abort);
        resolve();
      };
      const cancel = this.#appoint(durationMs, wake);
      const abort = (): void => {
        cancel();
        wake();
      };
      this.#sleeperCount++;
      signal?.addEventListener('abort', abort, { once: true });
    });
  }

  /** Calls back when the clock has been advanced by the duration, or without any advance if the duration is not above zero. */
  after(durationMs: number, work: () => void): () => void {
    return durationMs > 0 ? this.#appoint(durationMs, work) : systemClock.after(0, work);
  }

  /**
   * Lets time pass: wakes and calls back in order, each at its own instant, and lets all continuations run.
   *
   * A sleeper that begins meanwhile is woken, too, if the duration is long enough. Anything that waits for something other than
   * this clock, such as a database, is not waited for.
   *
   * @throws RangeError when the duration is negative or not a number
   */
  async advance(durationMs: number): Promise<void> {
    if (!(durationMs >= 0))
      throw new RangeError(
        `Time cannot pass by ${durationMs} ms: pass 0 or more, or correct the clock with set()`,
      );
    const endMs = this.#advancedMs + durationMs;
    await settled();
    for (let next = this.#nextUntil(endMs); next !== undefined; next = this.#nextUntil(endMs)) {
      this.#pass(next.atMs);
      next.happen();
      await settled();
    }
    this.#pass(endMs);
  }

  /**
   * Lets time pass until the next sleeper wakes, or the next callback is called, and lets its continuations run.
   *
   * @returns false when nothing waits for the clock: then time stands still
   */
  async wakeNext(): Promise<boolean> {
    const next = this.#appointments.shift();
    if (next === undefined) return false;
    this.#pass(next.atMs);
    next.happen();
    await settled();
    return true;
  }

  /** Corrects the time of day, forwards or backwards; wakes no sleeper, because durations are not affected. */
  set(now: Date): void {
    this.#nowMs = now.getTime();
  }

  #appoint(durationMs: number, happen: () => void): () => void {
    const all = this.#appointments;
    const appointment: Appointment = { atMs: this.#advancedMs + durationMs, happen };
    const later = all.findIndex(({ atMs }) => atMs > appointment.atMs);
    all.splice(later === -1 ? all.length : later, 0, appointment);
    return () => {
      const index = all.indexOf(appointment);
      if (index !== -1) all.splice(index, 1);
    };
  }

  #nextUntil(endMs: number): Appointment | undefined {
    const [next] = this.#appointments;
    return next !== undefined && next.atMs <= endMs ? this.#appointments.shift() : undefined;
  }

  #pass(untilMs: number): void {
    this.#nowMs += untilMs - this.#advancedMs;
    this.#advancedMs = untilMs;
  }
}

/** Lets every pending continuation run: callbacks of promises come before the next turn of the event loop. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
