import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { fileURLToPath } from 'node:url';
import { vi } from 'vitest';

import { type HostProcess, runService } from '@framework/service';

import { walletService } from '../src/wallet-service.js';

/** The service's program, in its sources. */
const main: string = fileURLToPath(new URL('../src/main.ts', import.meta.url));
/** Long enough if many start at the same time. */
const startTimeoutMs = 60_000;
const loader = new URL('run-typescript.mjs', import.meta.url).href;
/** What Node runs: the service's sources. */
export const fromSources: readonly string[] = ['--conditions=@framework/source', '--import', loader, main];

/** A run of the service's program. */
export abstract class RunningProgram {
  protected readonly exited: PromiseWithResolvers<unknown> = Promise.withResolvers();
  #stdout = '';
  #stderr = '';

  /** What the service has printed for people so far. */
  get stdout(): string {
    return this.#stdout;
  }

  /** What the service has logged so far. */
  get stderr(): string {
    return this.#stderr;
  }

  protected print(text: string): void {
    this.#stdout += text;
  }

  protected log(text: string): void {
    this.#stderr += text;
  }

  /**
   * Waits for a text on standard output, and returns the address in it.
   *
   * @param timeoutMs how long. Default: a minute, which is enough if it starts no databases itself.
   */
  async printed(text: string, timeoutMs: number = startTimeoutMs): Promise<string> {
    await vi.waitFor(() => assert.ok(this.#stdout.includes(text), this.#stdout + this.#stderr), {
      timeout: timeoutMs,
    });
    return /http:\/\/127\.0\.0\.1:\d+/.exec(this.#stdout)?.[0] ?? '';
  }

  /** Waits until every shard is ready, which may be later than the service's report, and returns the service's address. */
  async served(timeoutMs: number = startTimeoutMs): Promise<string> {
    const url = await this.printed('http://', timeoutMs);
    await vi.waitFor(async () => assert.equal((await fetch(`${url}/health/ready`)).status, 200), {
      timeout: timeoutMs,
    });
    return url;
  }

  abstract get pid(): number | undefined;

  /** Sends a signal. */
  abstract kill(signal: NodeJS.Signals): void;

  /** Ends the program, whatever it is doing. */
  abstract end(): Promise<void>;

  /** Waits for the end of the program and returns its exit code; `null` after a signal that it did not handle. */
  exitCode(): Promise<unknown> {
    return this.exited.promise;
  }
}

/** The service's program in the process of the tests: it starts in milliseconds, but must not be killed. */
export class ProgramInProcess extends RunningProgram {
  readonly #signals = new EventEmitter();

  /**
   * Starts the service with an environment; PORT is a free port unless set.
   *
   * @param words an operator's command. Default: none, so that the service starts
   */
  constructor(environment: Readonly<Record<string, string>>, words: readonly string[] = []) {
    super();
    const host = {
      argv: ['node', main, ...words],
      env: { PORT: '0', ...environment },
      exitCode: 0,
      stdout: { write: (text: string) => this.print(text), on: () => undefined },
      stderr: {
        writableLength: 0,
        on: () => undefined,
        write: (text: string, taken?: () => void) => {
          this.log(text);
          taken?.();
        },
      },
      on: (event: string, listener: () => void) => this.#signals.on(event, listener),
      exit: (code: number) => {
        this.#signals.emit('exit');
        this.exited.resolve(code);
      },
    };
    const running = runService(walletService, host as unknown as HostProcess).then(() => host.exitCode);
    // A command ends the program; the service continues.
    if (words.length > 0) running.then(this.exited.resolve, this.exited.reject);
    else running.catch(this.exited.reject);
  }

  get pid(): number {
    return process.pid;
  }

  kill(signal: NodeJS.Signals): void {
    this.#signals.emit(signal);
  }

  async end(): Promise<void> {
    this.kill('SIGTERM');
    await this.exitCode();
  }
}

/** The service as a separate process. */
export class ServiceProcess extends RunningProgram {
  readonly #child: ChildProcess;

  /**
   * Starts the service with an environment; PORT is a free port unless set.
   *
   * @param program what Node runs. Default: the service's sources.
   * @param options.leadsGroup whether the service leads a process group, as when a shell starts it. Default: it is in that of the tests
   */
  constructor(
    environment: Readonly<Record<string, string>>,
    program: readonly string[] = fromSources,
    { leadsGroup = false }: { readonly leadsGroup?: boolean } = {},
  ) {
    super();
    const { PATH = '' } = process.env;
    this.#child = spawn(process.execPath, program, {
      detached: leadsGroup,
      env: { PATH, PORT: '0', ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child.on('exit', (code) => this.exited.resolve(code)).on('error', this.exited.reject);
    this.#child.stdout?.on('data', (chunk: Buffer) => this.print(chunk.toString()));
    this.#child.stderr?.on('data', (chunk: Buffer) => this.log(chunk.toString()));
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Whether the process is still running. */
  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async end(): Promise<void> {
    this.kill('SIGKILL');
    await this.exitCode();
  }

  /** Sends SIGINT to every process of the group that the service leads, like Ctrl-C in a terminal. */
  interruptGroup(): void {
    assert.ok(this.pid !== undefined);
    process.kill(-this.pid, 'SIGINT');
  }
}
