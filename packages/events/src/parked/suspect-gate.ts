import type { Clock } from '@framework/core';

/**
 * Has attempts at parked events, of all databases of a process, made side by side, or alone: so that it is known which one is to
 * blame when the process ends.
 *
 * One that takes long keeps the others out for a bounded time only. After each that was alone the others have their turn.
 */
export class SuspectGate {
  readonly #clock: Clock;
  /** What runs, also when it was alone before. */
  readonly #running = new Set<Promise<void>>();
  readonly #waiting: (() => Promise<void>)[] = [];
  /** While one is alone, or waits for those that run to end. */
  #closed: Promise<void> | undefined;
  #takesTurns = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs work beside other work, when none is alone; resolves when it has ended. */
  async runBeside(work: () => Promise<void>): Promise<void> {
    while (this.#closed !== undefined) await this.#closed;
    await this.#run(work);
  }

  /**
   * Runs work when it is its turn, and what runs has ended, or was waited for long enough; resolves when it has ended.
   *
   * @param work gets a signal that is aborted from when on it is not alone: at once where others do not end in time
   * @param aloneMs for how long it waits, and for how long it is alone, at most
   */
  runAlone(work: (alone: AbortSignal) => Promise<void>, aloneMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(async () => {
        await this.#within(aloneMs, Promise.all(this.#running));
        const over = new AbortController();
        // What still runs may be what ends the process.
        if (this.#running.size > 0) over.abort();
        const running = this.#run(() => work(over.signal));
        running.then(resolve, reject);
        if (!over.signal.aborted) await this.#within(aloneMs, running);
        over.abort();
      });
      if (!this.#takesTurns) void this.#takeTurns();
    });
  }

  #run(work: () => Promise<void>): Promise<void> {
    const running = work().finally(() => this.#running.delete(running));
    this.#running.add(running);
    return running;
  }

  async #takeTurns(): Promise<void> {
    this.#takesTurns = true;
    for (let turn = this.#waiting.shift(); turn !== undefined; turn = this.#waiting.shift()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#closed = promise;
      await turn();
      this.#closed = undefined;
      resolve();
      // Those that have waited begin before the next one closes the gate.
      await promise;
    }
    this.#takesTurns = false;
  }

  async #within(durationMs: number, work: Promise<unknown>): Promise<void> {
    const over = new AbortController();
    const ended = work.then(
      () => undefined,
      () => undefined,
    );
    await Promise.race([ended, this.#clock.sleep(durationMs, over.signal)]);
    over.abort();
  }
}
