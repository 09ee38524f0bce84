import type { Clock } from '@framework/core';

/** The calls of one handler that run; ends those that take too long, with one sleep for all of them. */
export class CallDeadlines<Call extends object> {
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #onExpired: (call: Call) => void;
  /** In the order in which they began, so that the first one expires first. */
  readonly #startedMs = new Map<Call, number>();
  #watching = false;
  #stopped = new AbortController();

  /** @param onExpired called with each call that takes longer, which is to be removed then */
  constructor(timeoutMs: number, clock: Clock, onExpired: (call: Call) => void) {
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  /** The calls that are watched. */
  get calls(): Iterable<Call> {
    return this.#startedMs.keys();
  }

  add(call: Call): void {
    this.#startedMs.set(call, this.#clock.elapsedMs());
    if (!this.#watching) void this.#watch();
  }

  /** Watches a call no more; false when it was removed before. */
  remove(call: Call): boolean {
    return this.#startedMs.delete(call);
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
      const leftMs = startedMs + this.#timeoutMs - this.#clock.elapsedMs();
      // Even the shortest timer takes a millisecond, which adds up where thousands expire together.
      if (leftMs > 0) await this.#clock.sleep(leftMs, signal);
      if (signal.aborted) break;
      // It may have returned meanwhile; the loop goes on with the oldest that has not.
      if (this.#startedMs.has(call)) this.#onExpired(call);
    }
    this.#watching = false;
  }
}
