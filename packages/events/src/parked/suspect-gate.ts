import type { DeliveryClock } from '../delivery-clock.js';

/**
 * Lets events that may have killed a process run one at a time in this process, so that a killer is alone.
 *
 * One that takes long keeps the others out for a bounded time only: it has not killed at once, and they must go on.
 */
export class SuspectGate {
  readonly #clock: DeliveryClock;
  readonly #aloneMs: number;
  #last: Promise<void> = Promise.resolve();

  /** @param aloneMs for how long the others wait at most */
  constructor(clock: DeliveryClock, aloneMs: number) {
    this.#clock = clock;
    this.#aloneMs = aloneMs;
  }

  /** Runs work when it is its turn; resolves when the work has ended, or has been alone for long enough. */
  run(work: () => Promise<void>): Promise<void> {
    const turn = this.#last.then(() => this.#alone(work()));
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  async #alone(work: Promise<void>): Promise<void> {
    const over = new AbortController();
    await Promise.race([work, this.#clock.sleep(this.#aloneMs, over.signal)]);
    over.abort();
  }
}
