import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { vi } from 'vitest';

/** The service's program, in its sources. */
export const main: string = fileURLToPath(new URL('../src/main.ts', import.meta.url));
/** Long enough if many start at the same time. */
const startTimeoutMs = 60_000;
const loader = new URL('run-typescript.mjs', import.meta.url).href;
/** What Node runs: the service's sources. */
export const fromSources: readonly string[] = ['--conditions=@framework/source', '--import', loader, main];

/** The service as a separate process. */
export class ServiceProcess {
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown[]>;
  #stdout = '';
  #stderr = '';

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
    const { PATH = '' } = process.env;
    this.#child = spawn(process.execPath, program, {
      detached: leadsGroup,
      env: { PATH, PORT: '0', ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#exit = once(this.#child, 'exit');
    this.#child.stdout?.on('data', (chunk: Buffer) => (this.#stdout += chunk.toString()));
    this.#child.stderr?.on('data', (chunk: Buffer) => (this.#stderr += chunk.toString()));
  }

  /** What the service has printed for people so far. */
  get stdout(): string {
    return this.#stdout;
  }

  /** What the service has logged so far. */
  get stderr(): string {
    return this.#stderr;
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

  /** Sends SIGINT to every process of the group that the service leads, like Ctrl-C in a terminal. */
  interruptGroup(): void {
    assert.ok(this.pid !== undefined);
    process.kill(-this.pid, 'SIGINT');
  }

  /** Waits for the end of the process and returns its exit code; `null` after a signal that it did not handle. */
  async exitCode(): Promise<unknown> {
    const [code] = await this.#exit;
    return code;
  }
}
