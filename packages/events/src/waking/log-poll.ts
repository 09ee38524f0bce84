import type { WorkerContext } from '../worker-context.js';
import { Alarm } from './alarm.js';

/** Has the log of one database looked at: at once when it is told to, else more rarely the longer nothing comes. */
export class LogPoll {
  readonly #context: WorkerContext;
  readonly #foundCount: () => number;
  readonly #look: () => void;
  readonly #alarm: Alarm;

  constructor(options: {
    readonly context: WorkerContext;
    /** How many events were found so far. */
    readonly foundCount: () => number;
    readonly look: () => void;
  }) {
    this.#context = options.context;
    this.#foundCount = options.foundCount;
    this.#look = options.look;
    this.#alarm = new Alarm(options.context.clock);
  }

  /** Has it looked at once, because something may have been committed. */
  ring(): void {
    this.#alarm.ring();
  }

  /** Goes on until delivery stops. */
  async run(): Promise<void> {
    const { settings, stopping } = this.#context;
    const { pollMinMs, pollMaxMs } = settings;
    let waitMs = pollMinMs;
    let foundCount = 0;
    while (!stopping.aborted) {
      const rung = await this.#alarm.wait(waitMs);
      const busy = rung || this.#foundCount() > foundCount;
      foundCount = this.#foundCount();
      waitMs = busy ? pollMinMs : Math.min(pollMaxMs, waitMs * 2);
      this.#look();
    }
  }
}
