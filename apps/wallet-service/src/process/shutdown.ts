import { ConfigurationError, HandlerNamesError, NoUsableShardError } from '@framework/core';

import type { ServiceSettings } from './service-settings.js';

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

/** Says why the service does not start and what to do; `undefined` for an error that only its stack can explain. */
export function startError(error: unknown, settings: ServiceSettings | undefined): string | undefined {
  if (error instanceof ConfigurationError || error instanceof NoUsableShardError) {
    const file = settings?.configFile;
    return file === undefined ? error.message : `WALLET_CONFIG=${file}\n${error.message}`;
  }
  if (error instanceof HandlerNamesError) {
    // Only where a version gave the handler a new name without listing the old one is there one too many.
    const orRetire = '\nOr retire those that are not to go on, with DeliveryOperator.retire';
    return `${error.message}${error.other === undefined ? orRetire : ''}`;
  }
  if (!(error instanceof Error)) return undefined;
  // Its class is in a module that only embedded databases load.
  if (error.name === 'PostgresServerError') return error.message;
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (settings === undefined || (syscall !== 'listen' && syscall !== 'getaddrinfo')) return undefined;
  if (code === 'EADDRINUSE') {
    return `Port ${settings.port} of ${settings.host} is in use: stop what listens there, or choose another one, such as PORT=${settings.port === 8081 ? 8082 : 8081}`;
  }
  return `The service cannot listen on port ${settings.port} of ${settings.host} (${code}): correct PORT or HOST`;
}
