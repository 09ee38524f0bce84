import type { Clock } from './clock.js';
import { outsideRequests } from './outside-requests.js';

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
