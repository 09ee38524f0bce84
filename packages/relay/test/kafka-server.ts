import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { type KafkaAdditions, formatKafka, kafkaClassPath, kafkaProgram } from './kafka-program.js';

const startMaxMs = 60_000;

// The server's parent is a shell that reads from a pipe. The pipe closes when this process ends, however it ends, and the shell
// then ends the server.
const supervisor = `
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
{ cat <&3 >/dev/null; kill -s KILL "$server"; } 2>/dev/null &
exec 3<&- </dev/null
wait "$server"
`;

/** A Kafka server, which does not outlive this process. */
export class KafkaServer {
  readonly url: URL;
  /** Where other servers join its cluster. */
  readonly controllerPort: number;
  readonly #process: ChildProcess;
  readonly #folder: string;
  readonly #exited: Promise<unknown>;

  private constructor(
    [port, controllerPort]: readonly [number, number],
    process: ChildProcess,
    folder: string,
  ) {
    this.url = new URL(`kafka://127.0.0.1:${port}`);
    this.controllerPort = controllerPort;
    this.#process = process;
    this.#folder = folder;
    process.stdin?.on('error', () => undefined);
    process.unref();
    (process.stdin as Socket).unref();
    this.#exited = once(process, 'exit');
  }

  /**
   * Starts a server from the jars of Maven Central.
   *
   * @returns `undefined`, after one line that says why, when this machine has no Java or no Maven, or cannot get the jars
   * @throws Error with the end of the server's log when it does not start
   */
  static async start(additions: KafkaAdditions = {}): Promise<KafkaServer | undefined> {
    const classPath = await kafkaClassPath().catch((error: unknown) => {
      const [reason = ''] = String(error).split('\n');
      process.stderr.write(`Kafka cannot be started here: ${reason}\n`);
      return undefined;
    });
    if (classPath === undefined) return undefined;
    const folder = await mkdtemp(join(tmpdir(), 'kafka-'));
    const [port = 0, controllerPort = 0] = additions.ports ?? (await freePorts(2));
    await formatKafka(classPath, { folder, port, controllerPort }, additions);
    const log = await open(join(folder, 'server.log'), 'a');
    const { command, args } = kafkaProgram(classPath, folder);
    const child = spawn('/bin/sh', ['-c', supervisor, 'sh', command, ...args], {
      detached: true,
      stdio: ['pipe', log.fd, log.fd],
    });
    const server = new KafkaServer([port, controllerPort], child, folder);
    await log.close();
    await server.#started();
    return server;
  }

  /** Ends the server, and removes its data. */
  async stop(): Promise<void> {
    this.#process.ref();
    this.#process.stdin?.end();
    await this.#exited;
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #started(): Promise<void> {
    const deadlineMs = performance.now() + startMaxMs;
    for (;;) {
      const log = await readFile(join(this.#folder, 'server.log'), 'utf8');
      if (log.includes('Kafka Server started')) return;
      const ended = this.#process.exitCode !== null;
      if (ended || performance.now() > deadlineMs) {
        await this.stop();
        const what = ended ? 'ended at once' : `did not start within ${startMaxMs} ms`;
        throw new Error(`Kafka ${what}. Its log ends with:\n${log.split('\n').slice(-30).join('\n')}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** Finds ports of 127.0.0.1 on which nothing listens now. */
export async function freePorts(count: number): Promise<readonly number[]> {
  const listeners = Array.from({ length: count }, () => createServer());
  const ports: number[] = [];
  for (const listener of listeners) {
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    ports.push((listener.address() as AddressInfo).port);
  }
  for (const listener of listeners) listener.close();
  return ports;
}
