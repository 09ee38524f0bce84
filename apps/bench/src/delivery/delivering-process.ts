import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** The bundle of `src/processes/deliver.ts`; this file is part of `dist/main.js`. */
const file = fileURLToPath(new URL('processes/deliver.js', import.meta.url));

/** The instructions for such a process. */
export interface DeliveringProcessOptions {
  /** A database for each shard. */
  readonly urls: readonly string[];
  /** The name of its only handler. */
  readonly handler: string;
}

/** A report of such a process. */
export type DeliveringProcessMessage =
  | { readonly kind: 'started' }
  /** The time of each call as returned by `epochMs`, each with its key of `depositKey`. */
  | { readonly kind: 'handled'; readonly calls: readonly (readonly [string, number])[] };

/** A separate process that delivers deposits to a handler and reports when the handler was called. */
export class DeliveringProcess {
  readonly #child: ChildProcess;
  readonly #handledMs: Map<string, number>;

  private constructor(child: ChildProcess, handledMs: Map<string, number>) {
    this.#child = child;
    this.#handledMs = handledMs;
  }

  /** Starts such a process, and waits until it delivers. Several may report to the same map. */
  static async start(
    options: DeliveringProcessOptions,
    handledMs = new Map<string, number>(),
  ): Promise<DeliveringProcess> {
    const child = fork(file, [JSON.stringify(options)], { serialization: 'advanced' });
    const started = new Promise<void>((resolve, reject) => {
      child.once('exit', (code) => reject(new Error(`The delivering process ended with ${code}`)));
      child.on('message', (message) => {
        const told = message as DeliveringProcessMessage;
        if (told.kind === 'started') resolve();
        else for (const [key, ms] of told.calls) if (!handledMs.has(key)) handledMs.set(key, ms);
      });
    });
    await started;
    return new DeliveringProcess(child, handledMs);
  }

  /** When each deposit was first handled. */
  get handledMs(): ReadonlyMap<string, number> {
    return this.#handledMs;
  }

  /** Kills the process in the middle of its work. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** Ends the process after it has given its leases back. */
  async stop(): Promise<void> {
    await this.#end('SIGTERM');
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const exited = once(this.#child, 'exit');
    this.#child.kill(signal);
    await exited;
  }
}
