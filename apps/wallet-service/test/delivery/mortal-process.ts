import { setTimeout as delay } from 'node:timers/promises';
import type { ServiceProcess } from '../service-process.js';

/** How long a process lives after it is ready, as a multiple of its startup time: on a busy machine, everything takes longer. */
const life = { min: 0.5, max: 5 };

/** A process that is killed at random moments, and restarted at once. */
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

  /** Waits until the current process is ready, and returns its address; it may already be dead. */
  ready(): Promise<string> {
    return this.#running.printed('is ready');
  }

  /** Kills the current process. */
  end(): void {
    this.#running.kill('SIGKILL');
  }

  /** Kills one process after the other until the signal is aborted, and leaves a running one behind. */
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
