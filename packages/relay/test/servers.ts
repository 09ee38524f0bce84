import { once } from 'node:events';
import { connect } from 'node:net';

import { GenericContainer, Wait, getContainerRuntimeClient } from 'testcontainers';

/** What runs in a container where Docker does, by the protocol of its URL. */
const images: Readonly<Record<string, ServerImage>> = {
  'nats:': { image: 'nats:2.12-alpine', command: ['-js'] },
  'amqp:': { image: 'rabbitmq:4-alpine', log: 'Server startup complete' },
  'redis:': { image: 'redis:8-alpine' },
  'mysql:': { image: 'mariadb:11', environment: { MARIADB_ALLOW_EMPTY_ROOT_PASSWORD: '1' } },
};

interface ServerImage {
  readonly image: string;
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  /** What it writes when it is ready, if its port answers before that. */
  readonly log?: string;
}

/**
 * A broker's server: the one that the environment names, otherwise one in a container where Docker runs, otherwise what answers on the
 * standard port of this machine, otherwise the one that `start` starts.
 *
 * @returns `undefined` when there is none, after writing a line that says how to provide one
 * @throws Error when there is none, although `RELAY_BROKERS` is `required`
 */
export async function brokerServer(
  name: string,
  variable: string,
  url: string,
  start?: () => Promise<URL | undefined>,
): Promise<URL | undefined> {
  const named = process.env[variable];
  const standard = new URL(url);
  if (named !== undefined) return new URL(named.includes('://') ? named : `${standard.protocol}//${named}`);
  const contained = await inContainer(standard);
  if (contained !== undefined) return contained;
  if (await answers(standard)) return standard;
  const started = await start?.();
  if (started !== undefined) return started;
  return skipTests(`No ${name}: start it on port ${standard.port}, or set ${variable}`);
}

/**
 * Says in one line why the tests of a server are skipped.
 *
 * @throws Error with the reason when `RELAY_BROKERS` is `required`
 */
export function skipTests(reason: string): undefined {
  if (process.env['RELAY_BROKERS'] === 'required') throw new Error(reason);
  process.stderr.write(`${reason}; its tests are skipped\n`);
}

/** Docker removes the container when the tests have ended. */
async function inContainer(standard: URL): Promise<URL | undefined> {
  const server = images[standard.protocol];
  if (server === undefined || !(await runsDocker())) return undefined;
  const { image, command, environment = {}, log } = server;
  const port = Number(standard.port);
  const described = new GenericContainer(image).withExposedPorts(port).withEnvironment(environment);
  if (command !== undefined) described.withCommand([...command]);
  if (log !== undefined) described.withWaitStrategy(Wait.forLogMessage(log));
  const container = await described.start();
  const url = new URL(standard);
  url.hostname = container.getHost();
  url.port = String(container.getMappedPort(port));
  return url;
}

async function runsDocker(): Promise<boolean> {
  try {
    await getContainerRuntimeClient();
    return true;
  } catch {
    return false;
  }
}

async function answers({ hostname, port }: URL): Promise<boolean> {
  const socket = connect({ host: hostname, port: Number(port) });
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
