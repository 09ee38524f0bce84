import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { serviceConfig } from '../load/bench-wallets.js';

/** The built service. */
const serviceFile = fileURLToPath(
  new URL('dist/main.js', import.meta.resolve('wallet-service/package.json')),
);

/** The wallet service as it is normally run, in a separate process. */
export class ServiceProcess {
  /** The service's address, such as `http://127.0.0.1:40123`. */
  readonly url: string;
  /** How long the service took from its start until it reported that every shard is ready. */
  readonly readyMs: number;
  readonly #child: ChildProcess;
  readonly #directory: string;

  private constructor(child: ChildProcess, directory: string, url: string, readyMs: number) {
    this.#child = child;
    this.#directory = directory;
    this.url = url;
    this.readyMs = readyMs;
  }

  /**
   * Starts a service with a database for each shard, and waits until it is ready; its log goes to a file.
   *
   * @param sections the sections `framework.security` and `framework.http`. Default: everybody is answered, within the default
   * limits.
   * @param nodeOptions options of Node.js, such as `--import=…`
   * @param file another program that answers deposits and prints the same. Default: the built service
   */
  static async start(
    urls: readonly string[],
    role: 'all' | 'http',
    sections: { readonly security?: object; readonly http?: object } = {},
    nodeOptions: readonly string[] = [],
    file: string = serviceFile,
  ): Promise<ServiceProcess> {
    const directory = await mkdtemp(join(tmpdir(), 'bench-service-'));
    const configFile = join(directory, 'wallet.json');
    await writeFile(configFile, JSON.stringify(serviceConfig(urls, sections)));
    const logFile = join(directory, 'log');
    const log = await open(logFile, 'w');
    const startedAtMs = performance.now();
    const child = spawn(process.execPath, [...nodeOptions, file], {
      env: { ...process.env, WALLET_CONFIG: configFile, WALLET_ROLE: role, PORT: '0' },
      stdio: ['ignore', 'pipe', log.fd],
    });
    let printed = '';
    const ready = Promise.withResolvers<number>();
    child.once('exit', (code) =>
      ready.reject(new Error(`The service ended with ${code}; its log: ${logFile}`)),
    );
    child.stdout?.on('data', (chunk: Buffer) => {
      printed += chunk.toString();
      if (printed.includes('is ready.')) ready.resolve(performance.now() - startedAtMs);
    });
    const readyMs = await ready.promise;
    await log.close();
    const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(printed) ?? [];
    if (url === undefined) throw new Error(`The service did not say where it listens:\n${printed}`);
    return new ServiceProcess(child, directory, url, readyMs);
  }

  /** The memory that the service uses now, in megabytes; `undefined` if the system does not say. */
  async residentMB(): Promise<number | undefined> {
    const status = await readFile(`/proc/${this.#child.pid}/status`, 'utf8').catch(() => '');
    const [, kibibytes] = /^VmRSS:\s*(\d+) kB$/m.exec(status) ?? [];
    return kibibytes === undefined ? undefined : (Number(kibibytes) * 1_024) / 1_000_000;
  }

  /** The processor time that the service has used so far, in milliseconds; `NaN` if the system does not say. */
  cpuMs(): Promise<number> {
    return cpuMsOf(this.#child.pid);
  }

  /** Stops the service in the normal way. */
  async stop(): Promise<void> {
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await exited;
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** The length of the ticks in which the system counts processor time, in milliseconds. */
const clockTickMs = 10;

/** The processor time that a process has used so far, in milliseconds; `NaN` if the system does not say. */
export async function cpuMsOf(pid: number | undefined): Promise<number> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  const [user, system] = text
    .slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 13);
  return (Number(user) + Number(system)) * clockTickMs;
}
