import { ConfigurationError } from '@framework/core';
import { HandlerNamesError, NoUsableShardError } from '@framework/core/adapter';

import type { ServiceSettings } from './service-settings.js';

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
  #begun = false;
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
        if (this.#begun && performance.now() - this.#begunMs >= repeatMs) host.exit(1);
        void this.exit(0);
      });
    }
  }

  /** Whether the process is ending. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Adds a step to run at shutdown. */
  add(step: () => Promise<void>): void {
    this.#steps.unshift(step);
  }

  /** Runs all steps and exits with the code, or with 1 if a step fails or the deadline passes. */
  async exit(code: 0 | 1): Promise<void> {
    if (this.#begun) return;
    this.#begun = true;
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
        this.#say(`Error while stopping: ${String(error)}`);
      });
    }
    clearTimeout(late);
    this.#host.exit(failed ? 1 : code);
  }
}

/** Explains why the service does not start and what to do; `undefined` for an error that only its stack can explain. */
export function startError(error: unknown, settings: ServiceSettings | undefined): string | undefined {
  if (error instanceof ConfigurationError || error instanceof NoUsableShardError) {
    const file = settings?.configFile;
    return file === undefined ? error.message : `WALLET_CONFIG=${file}\n${error.message}`;
  }
  if (error instanceof HandlerNamesError) {
    // Retiring helps only if a release renamed the handler without listing the old name as an alias.
    const orRetire = '\nOr retire the ids that are not needed any more, with DeliveryOperator.retire';
    return `${error.message}${error.other === undefined ? orRetire : ''}`;
  }
  if (!(error instanceof Error)) return undefined;
  // Checked by name, because its class is in a module that only embedded databases load.
  if (error.name === 'PostgresServerError') return error.message;
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (settings === undefined || (syscall !== 'listen' && syscall !== 'getaddrinfo')) return undefined;
  if (code === 'EADDRINUSE') {
    return `Port ${settings.port} of ${settings.host} is in use: stop the process that listens there, or choose another port, such as PORT=${settings.port === 8081 ? 8082 : 8081}`;
  }
  return `The service cannot listen on port ${settings.port} of ${settings.host} (${code}): correct PORT or HOST`;
}
