import { redacted } from '@framework/http';

const signals = ['SIGTERM', 'SIGINT'] as const;
/**
 * Signals within this time count as the first one repeated: Ctrl-C reaches a process both from the terminal and from
 * each parent that passes it on.
 */
const repeatMs = 1_000;

type ShutdownHost = Pick<NodeJS.Process, 'on' | 'exit'>;

/** Ends the process cleanly: closes everything that was opened, in reverse order, within a deadline. */
export class Shutdown {
  readonly #host: ShutdownHost;
  readonly #timeoutMs: number;
  readonly #say: (line: string) => void;
  readonly #steps: (() => Promise<void>)[] = [];
  readonly #ending = new AbortController();
  #begunMs = Infinity;

  /** Begins the shutdown at the first SIGTERM or SIGINT. Another signal, a second or more later, ends the process at once. */
  constructor(
    host: ShutdownHost,
    options: { readonly timeoutMs: number; readonly say: (line: string) => void },
  ) {
    this.#host = host;
    this.#timeoutMs = options.timeoutMs;
    this.#say = options.say;
    for (const signal of signals) {
      host.on(signal, () => {
        if (this.begun && performance.now() - this.#begunMs >= repeatMs) host.exit(1);
        void this.exit(0);
      });
    }
  }

  /** Whether the process is ending. */
  get begun(): boolean {
    return this.signal.aborted;
  }

  /** Aborts when the process begins to end. */
  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Adds a step to run at shutdown. */
  add(step: () => Promise<void>): void {
    this.#steps.unshift(step);
  }

  /** Runs all steps and exits with the code, or with 1 if a step fails or the deadline passes. */
  async exit(code: 0 | 1): Promise<void> {
    if (this.begun) return;
    this.#ending.abort();
    this.#begunMs = performance.now();
    const late = setTimeout(() => {
      this.#say(`Stopping took longer than ${this.#timeoutMs} ms: exiting now`);
      this.#host.exit(1);
    }, this.#timeoutMs);
    let failed = false;
    // Takes steps off the list one by one, because an interrupted start may still add some.
    for (let step = this.#steps.shift(); step !== undefined; step = this.#steps.shift()) {
      await step().catch((error: unknown) => {
        failed = true;
        this.#say(`Error while stopping: ${redacted(String(error))}`);
      });
    }
    clearTimeout(late);
    this.#host.exit(failed ? 1 : code);
  }
}
