import type { Clock } from '@framework/core';
import type { Scheduler, StepOwner } from './scheduler.js';

/** The clock of one process: its time of day may jump, its durations do not. */
export class SimulatedClock implements Clock {
  readonly #scheduler: Scheduler;
  readonly #owner: StepOwner;
  /** How those who sleep stop listening to their signals. */
  readonly #sleepers = new Set<() => void>();
  #startMs: number;

  /** @param start the time of day at the start of the run */
  constructor(scheduler: Scheduler, owner: StepOwner, start: Date) {
    this.#scheduler = scheduler;
    this.#owner = owner;
    this.#startMs = start.getTime();
  }

  now(): Date {
    return new Date(this.#startMs + Math.floor(this.#scheduler.nowMs));
  }

  elapsedMs(): number {
    return this.#scheduler.nowMs;
  }

  sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    if (!(durationMs > 0) || signal?.aborted === true) return Promise.resolve();
    if (signal === undefined) return this.#scheduler.sleep(this.#owner, durationMs, 'timer');
    return new Promise((resolve) => {
      const leave = (): void => {
        signal.removeEventListener('abort', wake);
        this.#sleepers.delete(leave);
      };
      const wake = (): void => {
        leave();
        cancel();
        resolve();
      };
      const cancel = this.after(durationMs, wake);
      signal.addEventListener('abort', wake);
      this.#sleepers.add(leave);
    });
  }

  /** Wakes nobody any more. A signal made of others, and with it all that its listeners know, is kept as long as it has any. */
  end(): void {
    for (const leave of this.#sleepers) leave();
  }

  after(durationMs: number, work: () => void): () => void {
    return this.#scheduler.after(this.#owner, durationMs, 'timer', work);
  }

  /** Corrects the time of day, forwards or backwards. */
  jump(byMs: number): void {
    this.#startMs += byMs;
  }
}
