import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, constants, mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const startTimeoutMs = 90_000;
const stopTimeoutMs = 30_000;
/** Below the ports that Linux gives to outgoing connections: a client must not get the port of a server that is down. */
const ports = { first: 20_000, count: 10_000 };
const outputMax = 4_000;

/** How a server is started. */
export interface ServerProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

/** A server process of a test, which can be stopped and started again on the same port and folder. */
export class OwnServer {
  readonly port: number;
  readonly folder: string;
  readonly #program: ServerProgram;
  #process: ChildProcess | undefined;
  #output = '';

  private constructor(port: number, folder: string, program: ServerProgram) {
    this.port = port;
    this.folder = folder;
    this.#program = program;
  }

  /**
   * Chooses a free port and creates an empty folder; nothing is started. End it with {@link OwnServer.end}.
   *
   * @param program how the server is started with them
   */
  static async create(program: (port: number, folder: string) => ServerProgram): Promise<OwnServer> {
    const [port, folder] = await Promise.all([freePort(), mkdtemp(join(tmpdir(), 'relay-broker-'))]);
    return new OwnServer(port, folder, program(port, folder));
  }

  /** Starts it, and waits until it accepts connections. */
  async start(): Promise<void> {
    const { command, args, environment } = this.#program;
    const started = spawn(command, [...args], {
      cwd: this.folder,
      env: { ...process.env, ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#process = started;
    const kill = (): void => void started.kill('SIGKILL');
    process.once('exit', kill);
    started.once('exit', () => process.off('exit', kill));
    const keep = (chunk: Buffer): void => {
      this.#output = (this.#output + chunk.toString()).slice(-outputMax);
    };
    started.on('error', (error) => keep(Buffer.from(error.message)));
    started.stdout.on('data', keep);
    started.stderr.on('data', keep);
    const deadlineMs = performance.now() + startTimeoutMs;
    while (!(await accepts(this.port))) {
      if (!isRunning(started) || performance.now() > deadlineMs)
        throw new Error(`${command} does not accept connections on port ${this.port}: ${this.#output}`);
      await delay(20);
    }
  }

  /** Ends the process by a signal; one that does not end in time is killed. */
  async stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const stopped = this.#process;
    if (stopped === undefined || !isRunning(stopped)) return;
    const exit = once(stopped, 'exit');
    stopped.kill(signal);
    const timer = setTimeout(() => stopped.kill('SIGKILL'), stopTimeoutMs);
    await exit;
    clearTimeout(timer);
  }

  /** Kills it, and removes its folder. */
  async end(): Promise<void> {
    await this.stop('SIGKILL');
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/**
 * Looks for a program of a broker.
 *
 * @param candidates names to look for on the path, or absolute paths
 * @returns `undefined`, after one line, when this machine has none
 * @throws Error when there is none, although `RELAY_BROKERS` is `required`
 */
export async function programOf(
  broker: string,
  ...candidates: readonly string[]
): Promise<string | undefined> {
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  const paths = candidates.flatMap((each) =>
    isAbsolute(each) ? [each] : folders.map((folder) => join(folder, each)),
  );
  for (const path of paths) if (await isProgram(path)) return path;
  return skipFaultTests(`No program of ${broker}: install ${candidates.at(-1)}`);
}

/**
 * Says in one line why the fault tests of a broker are skipped.
 *
 * @throws Error with the reason when `RELAY_BROKERS` is `required`
 */
export function skipFaultTests(reason: string): undefined {
  if (process.env['RELAY_BROKERS'] === 'required') throw new Error(reason);
  process.stderr.write(`${reason}; its fault tests are skipped\n`);
}

async function isProgram(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function isRunning({ pid, exitCode, signalCode }: ChildProcess): boolean {
  return pid !== undefined && exitCode === null && signalCode === null;
}

/** Finds a port on which nothing listens now, and which no client gets for a connection. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = ports.first + Math.floor(Math.random() * ports.count);
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
      return port;
    } catch {
      // It is taken: another one is tried.
    } finally {
      server.close();
    }
  }
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect({ host: '127.0.0.1', port });
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
