const signals = ['SIGTERM', 'SIGINT'] as const;
/**
 * For how long further signals are the first one again: Ctrl-C reaches a process from the terminal and from each parent that
 * passes it on.
 */
const repeatMs = 1_000;

/** Ends the process in order: closes what was opened, last first, within a deadline. */
export class Shutdown {
  readonly #timeoutMs: number;
  readonly #say: (line: string) => void;
  readonly #steps: (() => Promise<void>)[] = [];
  #begun = false;
  #begunMs = Infinity;

  /** Begins with the first SIGTERM or SIGINT; another one, from a second later on, ends the process at once. */
  constructor(options: { readonly timeoutMs: number; readonly say: (line: string) => void }) {
    this.#timeoutMs = options.timeoutMs;
    this.#say = options.say;
    for (const signal of signals) {
      process.on(signal, () => {
        if (this.#begun && performance.now() - this.#begunMs >= repeatMs) process.exit(1);
        void this.exit(0);
      });
    }
  }

  /** Whether the process is ending. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Remembers what is to be closed. */
  add(step: () => Promise<void>): void {
    this.#steps.unshift(step);
  }

  /** Closes everything and exits: with the code, or with 1 when a step failed or the deadline passed. */
  async exit(code: 0 | 1): Promise<void> {
    if (this.#begun) return;
    this.#begun = true;
    this.#begunMs = performance.now();
    setTimeout(() => {
      this.#say(`Stopping took longer than ${this.#timeoutMs} ms and was cut short`);
      process.exit(1);
    }, this.#timeoutMs);
    let failed = false;
    // One by one off the list: the start that was interrupted may still open something.
    for (let step = this.#steps.shift(); step !== undefined; step = this.#steps.shift()) {
      await step().catch((error: unknown) => {
        failed = true;
        this.#say(`Stopping: ${String(error)}`);
      });
    }
    process.exit(failed ? 1 : code);
  }
}
