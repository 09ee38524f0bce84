import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, open, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);

const version = '4.2.1';
const jarsFolder = fileURLToPath(new URL(`../node_modules/.cache/kafka-${version}/`, import.meta.url));
const startMaxMs = 60_000;
const downloadMaxMs = 300_000;

/** Without this, the server would not say anything: it leaves the choice of a logger to its distribution. */
const logger = { group: 'org.slf4j', name: 'slf4j-simple', version: '1.7.36' };

const project = `
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>relay</groupId>
  <artifactId>kafka-server</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${version}</version></dependency>
    <dependency><groupId>${logger.group}</groupId><artifactId>${logger.name}</artifactId><version>${logger.version}</version></dependency>
  </dependencies>
</project>
`;

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

/** A Kafka server of one node, which does not outlive this process. */
export class KafkaServer {
  readonly url: URL;
  readonly #process: ChildProcess;
  readonly #folder: string;
  readonly #exited: Promise<unknown>;

  private constructor(port: number, process: ChildProcess, folder: string) {
    this.url = new URL(`kafka://127.0.0.1:${port}`);
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
  static async start(): Promise<KafkaServer | undefined> {
    const classPath = await jars().catch((error: unknown) => {
      const [reason = ''] = String(error).split('\n');
      process.stderr.write(`Kafka cannot be started here: ${reason}\n`);
      return undefined;
    });
    if (classPath === undefined) return undefined;
    const folder = await mkdtemp(join(tmpdir(), 'kafka-'));
    const [port, controllerPort] = await freePorts();
    const settings = join(folder, 'server.properties');
    await writeFile(settings, propertiesOf(folder, port, controllerPort));
    await run('java', [...machine, classPath, 'kafka.tools.StorageTool', 'format', ...formatOf(settings)]);
    const log = await open(join(folder, 'server.log'), 'a');
    const command = ['java', ...machine, classPath, 'kafka.Kafka', settings];
    const child = spawn('/bin/sh', ['-c', supervisor, 'sh', ...command], {
      detached: true,
      stdio: ['pipe', log.fd, log.fd],
    });
    const server = new KafkaServer(port, child, folder);
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

/** A small machine that starts quickly. */
const machine = ['-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp'];

function formatOf(settings: string): readonly string[] {
  return ['--cluster-id', 'MkU3OEVBNTcwNTJENDM2Qg', '--config', settings];
}

function propertiesOf(folder: string, port: number, controllerPort: number): string {
  return Object.entries({
    'process.roles': 'broker,controller',
    'node.id': 1,
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'CLIENTS',
    'listener.security.protocol.map': 'CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT',
    listeners: `CLIENTS://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controllerPort}`,
    'log.dirs': join(folder, 'data'),
    // Allows everything that no entry of an access control list forbids.
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'allow.everyone.if.no.acl.found': true,
    // Only for clients that ask for it.
    'auto.create.topics.enable': true,
  })
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

/** The class path of the server; its jars are kept for the next run. */
async function jars(): Promise<string> {
  await run('java', ['-version']);
  const kept = await readdir(jarsFolder).catch(() => []);
  if (kept.length === 0) await download();
  const names = await readdir(jarsFolder);
  return names.map((name) => join(jarsFolder, name)).join(delimiter);
}

/** Another process may do the same at the same time: the folder appears only when it is complete. */
async function download(): Promise<void> {
  await mkdir(join(jarsFolder, '..'), { recursive: true });
  const folder = await mkdtemp(join(jarsFolder, '..', 'kafka-jars-'));
  try {
    await downloadWithMaven(folder);
    await rename(join(folder, 'jars'), jarsFolder).catch(async (error: unknown) => {
      if ((await readdir(jarsFolder).catch(() => [])).length === 0) throw error;
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Maven knows what the machine has as a mirror. */
async function downloadWithMaven(folder: string): Promise<void> {
  await writeFile(join(folder, 'pom.xml'), project);
  const goal = ['dependency:copy-dependencies', '-DincludeScope=runtime', '-DoutputDirectory=jars'];
  await run('mvn', ['--quiet', '--batch-mode', ...goal], { cwd: folder, timeout: downloadMaxMs });
}

async function freePorts(): Promise<readonly [number, number]> {
  const listeners = [createServer(), createServer()];
  const ports: number[] = [];
  for (const listener of listeners) {
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    ports.push((listener.address() as AddressInfo).port);
  }
  for (const listener of listeners) listener.close();
  const [first = 0, second = 0] = ports;
  return [first, second];
}
