import { type DeliveryClock, elapsedMs } from '../delivery-clock.js';

/** Ends calls of one handler that take too long, with one sleep for all of them. */
export class CallDeadlines<Call extends object> {
  readonly #timeoutMs: number;
  readonly #clock: DeliveryClock;
  readonly #onExpired: (call: Call) => void;
  /** In the order in which they began, so that the first one expires first. */
  readonly #startedMs = new Map<Call, number>();
  #watching = false;
  #stopped = new AbortController();

  constructor(timeoutMs: number, clock: DeliveryClock, onExpired: (call: Call) => void) {
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  add(call: Call): void {
    this.#startedMs.set(call, elapsedMs(this.#clock));
    if (!this.#watching) void this.#watch();
  }

  remove(call: Call): void {
    this.#startedMs.delete(call);
  }

  /** Ends the sleep; calls that are added later are watched again. */
  stop(): void {
    this.#stopped.abort();
    this.#stopped = new AbortController();
  }

  async #watch(): Promise<void> {
    this.#watching = true;
    const { signal } = this.#stopped;
    for (const [call, startedMs] of this.#startedMs) {
      const leftMs = startedMs + this.#timeoutMs - elapsedMs(this.#clock);
      if (leftMs > 0) await this.#clock.sleep(leftMs, signal);
      if (signal.aborted) break;
      // It may have returned meanwhile; the loop goes on with the oldest that has not.
      if (this.#startedMs.delete(call)) this.#onExpired(call);
    }
    this.#watching = false;
  }
}
