import { setTimeout as delay } from 'node:timers/promises';
import type { ServiceProcess } from '../service-process.js';

/** How long a process lives after it is ready, as often as it took to start: on a busy machine, everything takes longer. */
const life = { min: 0.5, max: 5 };

/** A process that is killed at random moments, and started again at once. */
export class MortalProcess {
  killCount = 0;
  readonly #start: () => ServiceProcess;
  readonly #random: () => number;
  #startedMs = performance.now();
  #running: ServiceProcess;

  constructor(start: () => ServiceProcess, random: () => number) {
    this.#start = start;
    this.#random = random;
    this.#running = start();
  }

  /** Waits until the one that runs now is ready, and gives its address; it may be dead already. */
  ready(): Promise<string> {
    return this.#running.printed('is ready');
  }

  /** Kills the one that lives. */
  end(): void {
    this.#running.kill('SIGKILL');
  }

  /** Kills until it is told to stop, and leaves one that lives. */
  async die(over: AbortSignal): Promise<void> {
    for (;;) {
      await this.ready();
      const startMs = performance.now() - this.#startedMs;
      const lifeMs = startMs * (life.min + this.#random() * (life.max - life.min));
      await delay(lifeMs, undefined, { signal: over }).catch(() => undefined);
      if (over.aborted) return;
      this.#running.kill('SIGKILL');
      this.#startedMs = performance.now();
      this.#running = this.#start();
      this.killCount++;
    }
  }
}
