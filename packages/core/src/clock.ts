import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Runs work outside of any request's async context. Work that serves many requests must not run in the context of the
 * request that happened to start it.
 *
 * It uses the context in which this module was loaded, so load it before the first request is served.
 */
export const outsideRequests: <Result>(work: () => Result) => Result = AsyncLocalStorage.snapshot();

/** The longest time that a timer can wait: a longer one would fire at once. */
export const timerMaxMs: number = 2 ** 31 - 1;

/** Port: the only way in which the framework and its users read the time and wait. */
export interface Clock {
  /** The current time, to the millisecond; it may jump. */
  now(): Date;
  /** Milliseconds since some fixed instant, for measuring durations; it never goes back. */
  elapsedMs(): number;
  /** Resolves after a duration in milliseconds, at the latest after 2,147,483,647, or as soon as the signal is aborted. */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void>;
  /**
   * Calls back once after a duration in milliseconds, at the latest after 2,147,483,647, outside of any request's async context.
   * After 0, it calls back as soon as pending callbacks have run.
   *
   * @returns a function that cancels the call
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

/** How many ticks a wait lasts by default. */
const ticksPerWaitDefault = 2;

/**
 * Ends waits that have lasted long enough, with one timer for all, which runs only while there are waits.
 *
 * A wait ends between its full duration and one tick later.
 */
export class Ticker {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #ticksPerWait: number;
  readonly #onTick: () => boolean;
  #tick = 0;
  #isTicking = false;

  /**
   * @param onTick ends the waits that are over; returns whether any remain
   * @param ticksPerWait more ticks end a wait more precisely, and run the timer more often
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

  /** The current tick, which a new wait remembers as its start. */
  get tick(): number {
    return this.#tick;
  }

  /**
   * Whether a wait that started at this tick is over. The first tick does not count, because part of it may have passed
   * before the wait started.
   *
   * @param ticks the duration of the wait in ticks, if it differs from the default
   */
  isOver(startedTick: number, ticks: number = this.#ticksPerWait): boolean {
    return this.#tick - startedTick > ticks;
  }

  /** Keeps ticking until no waits remain. */
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
