import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { delimiter } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { processesWithin } from './processes-within.ts';

const pollIntervalMs = 50;
const requestTimeoutMs = 10_000;

/** The newcomer's PATH: without the workspace, which contains a Node of its own. */
export const hostPath = (process.env['PATH'] ?? '')
  .split(delimiter)
  .filter((folder) => !folder.includes('node_modules'))
  .join(delimiter);

/** The command of `npm start` in a checkout, without any configuration except the port. */
export class StartedService {
  readonly #npm: ChildProcess;
  readonly #exit: Promise<unknown[]>;
  readonly #folder: string;
  readonly #port: number;
  #output = '';

  private constructor(folder: string, port: number, environment: NodeJS.ProcessEnv) {
    this.#folder = folder;
    this.#port = port;
    const { WALLET_CONFIG: _1, TEST_DATABASE_URL: _2, HOST: _3, ...inherited } = process.env;
    this.#npm = spawn('npm', ['start'], {
      cwd: folder,
      env: { ...inherited, ...environment, PATH: hostPath, PORT: String(port) },
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#exit = once(this.#npm, 'exit');
    for (const stream of [this.#npm.stdout, this.#npm.stderr])
      stream?.on('data', (chunk) => (this.#output += String(chunk)));
  }

  static async start(folder: string, environment: NodeJS.ProcessEnv = {}): Promise<StartedService> {
    const probe = createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const address = probe.address();
    probe.close();
    await once(probe, 'close');
    if (address === null || typeof address === 'string') throw new Error('The system gives no port');
    return new StartedService(folder, address.port, environment);
  }

  /** What the command has printed so far. */
  get output(): string {
    return this.#output;
  }

  /** Waits until the service reports that it is ready. Returns how long that took. */
  async readyAfterMs(timeoutMs: number): Promise<number> {
    const startedAtMs = performance.now();
    await until('npm start is ready', timeoutMs, async () => {
      if (this.#npm.exitCode !== null) throw new Error(`npm start ended:\n${this.#output}`);
      const response = await this.request('GET', '/health/ready').catch(() => undefined);
      return response?.status === 200;
    });
    return performance.now() - startedAtMs;
  }

  async request(method: string, path: string, body?: object): Promise<{ status: number; body: unknown }> {
    const response = await fetch(`http://127.0.0.1:${this.#port}${path}`, {
      method,
      ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(requestTimeoutMs),
    });
    const text = await response.text();
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) };
  }

  /** Sends the signal only to npm, as `kill` does. Returns its exit code when none of its processes is running any more. */
  async signal(signal: NodeJS.Signals, timeoutMs: number): Promise<unknown> {
    this.#npm.kill(signal);
    return this.#ended(timeoutMs);
  }

  /** Sends SIGINT to the whole process group, like Ctrl-C in a terminal. */
  async interrupt(timeoutMs: number): Promise<unknown> {
    if (this.#npm.pid !== undefined) process.kill(-this.#npm.pid, 'SIGINT');
    return this.#ended(timeoutMs);
  }

  async #ended(timeoutMs: number): Promise<unknown> {
    await until('nothing runs any more', timeoutMs, () => processesWithin(this.#folder).length === 0);
    const [code] = await this.#exit;
    return code;
  }
}

/** Kills everything that runs in the folder, without a chance to clean up. */
export async function killAllWithin(folder: string, timeoutMs: number): Promise<void> {
  await until('everything is killed', timeoutMs, () => {
    const pids = processesWithin(folder);
    for (const pid of pids) killIfThere(pid);
    return pids.length === 0;
  });
}

/** Waits until the condition holds; throws if it does not in time. */
export async function until(
  what: string,
  timeoutMs: number,
  condition: () => boolean | Promise<boolean>,
): Promise<void> {
  const endsAtMs = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() >= endsAtMs)
      throw new Error(`After ${timeoutMs} ms it is still not true that ${what}`);
    await pause(pollIntervalMs);
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended meanwhile.
  }
}
