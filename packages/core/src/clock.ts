import { outsideRequests } from './outside-requests.js';

/** The longest time that a timer can wait: a longer one would end at once. */
export const timerMaxMs: number = 2 ** 31 - 1;

/** The port through which the framework and its users read the time and wait; nothing else of them does. */
export interface Clock {
  /** The current instant, with millisecond precision; it may jump. */
  now(): Date;
  /** Milliseconds since any fixed instant, which only grow: what durations are measured by. */
  elapsedMs(): number;
  /** Resolves after a duration in milliseconds, or as soon as the signal is aborted. */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void>;
  /**
   * Calls back once after a duration in milliseconds, outside the async context of any request; after 0, as soon as what is
   * ready now has run.
   *
   * @returns what cancels that
   */
  after(durationMs: number, work: () => void): () => void;
}

/** The computer's own clock. */
export const systemClock: Clock = {
  now: () => new Date(),
  elapsedMs: () => performance.now(),
  sleep: (durationMs, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const timer = setTimeout(done, Math.max(0, Math.min(durationMs, timerMaxMs)));
      signal?.addEventListener('abort', done, { once: true });
      function done(): void {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      }
    }),
  after: (durationMs, work) => outsideRequests(() => callBack(durationMs, work)),
};

function callBack(durationMs: number, work: () => void): () => void {
  if (durationMs <= 0) {
    const immediate = setImmediate(work);
    return () => clearImmediate(immediate);
  }
  const timeout = setTimeout(work, Math.min(durationMs, timerMaxMs));
  return () => clearTimeout(timeout);
}

/** How many ticks of the clock make up a wait, unless told otherwise. */
const ticksPerWaitDefault = 2;

/**
 * Ends waits that have lasted long enough: one timer for all of them, which runs while there are any.
 *
 * A wait is over between its whole duration and one tick more.
 */
export class Ticker {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #ticksPerWait: number;
  readonly #onTick: () => boolean;
  #tick = 0;
  #isTicking = false;

  /**
   * @param onTick ends the waits that are over; tells whether anybody still waits
   * @param ticksPerWait the more, the sooner a wait is over, and the more often the timer runs
   */
  constructor(
    clock: Clock,
    waitMs: number,
    onTick: () => boolean,
    ticksPerWait: number = ticksPerWaitDefault,
  ) {
    this.#clock = clock;
    this.#tickMs = waitMs / ticksPerWait;
    this.#ticksPerWait = ticksPerWait;
    this.#onTick = onTick;
  }

  /** The tick by which a wait that begins now is measured. */
  get tick(): number {
    return this.#tick;
  }

  /**
   * Whether a wait that began at this tick is over; that tick does not count as a whole one.
   *
   * @param ticks how many it lasts, where that is not as long as others do
   */
  isOver(startedTick: number, ticks: number = this.#ticksPerWait): boolean {
    return this.#tick - startedTick > ticks;
  }

  /** Keeps ticking until nobody waits any more. */
  start(): void {
    if (!this.#isTicking) outsideRequests(() => void this.#keepTicking());
  }

  async #keepTicking(): Promise<void> {
    this.#isTicking = true;
    do {
      await this.#clock.sleep(this.#tickMs);
      this.#tick++;
    } while (this.#onTick());
    this.#isTicking = false;
  }
}
