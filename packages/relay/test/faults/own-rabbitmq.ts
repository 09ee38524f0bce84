import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { connect } from 'amqplib';

import { type OwnBroker, ownBroker } from './own-broker.js';
import { OwnServer, freePort, programOf } from './own-server.js';

const exchange = 'wallet-events';
const queue = 'reader';
const unacknowledgedMax = 500;

/** A server of RabbitMQ, which starts after that of its names. */
export interface RabbitMqServer {
  readonly names: OwnServer;
  readonly server: OwnServer;
  /** Runs `rabbitmqctl`, and returns what it prints. */
  readonly ctl: (...args: readonly string[]) => Promise<string>;
}

/** Where this machine has the programs of RabbitMQ, if it has them. */
export function rabbitMqProgram(): Promise<string | undefined> {
  // The script that Debian has on the path runs the server as another user, who has no access to the folder of the test.
  return programOf('RabbitMQ', '/usr/lib/rabbitmq/bin/rabbitmq-server', 'rabbitmq-server');
}

/** RabbitMQ with a server of its own, if this machine has the program. */
export async function ownRabbitMq(): Promise<(() => Promise<OwnBroker>) | undefined> {
  const command = await rabbitMqProgram();
  return command === undefined ? undefined : () => create(command);
}

/**
 * Prepares a server of RabbitMQ; nothing is started.
 *
 * @param settings further lines of its configuration
 */
export async function rabbitMqServer(
  command: string,
  settings: readonly string[] = [],
): Promise<RabbitMqServer> {
  // Erlang would start a daemon that outlives the test.
  const names = await OwnServer.create((port) => ({
    command: 'epmd',
    args: ['-address', '127.0.0.1', '-port', `${port}`],
  }));
  const distributionPort = await freePort();
  const server = await OwnServer.create((port, folder) => ({
    command,
    args: [],
    environment: {
      ERL_EPMD_PORT: `${names.port}`,
      ERL_EPMD_ADDRESS: '127.0.0.1',
      RABBITMQ_NODENAME: nodeOf(port),
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: `${port}`,
      RABBITMQ_DIST_PORT: `${distributionPort}`,
      RABBITMQ_MNESIA_BASE: join(folder, 'data'),
      RABBITMQ_LOG_BASE: join(folder, 'log'),
      RABBITMQ_PID_FILE: join(folder, 'pid'),
      RABBITMQ_CONFIG_FILE: join(folder, 'rabbitmq.conf'),
      RABBITMQ_CONF_ENV_FILE: join(folder, 'environment.conf'),
      RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, 'plugins'),
      // Otherwise Erlang would keep its cookie in a file of the user.
      HOME: folder,
      // The script replaces itself by the server, so that a signal reaches the server.
      RUNNING_UNDER_SYSTEMD: 'true',
    },
  }));
  await Promise.all([
    writeFile(join(server.folder, 'rabbitmq.conf'), ['loopback_users = none', ...settings, ''].join('\n')),
    writeFile(join(server.folder, 'environment.conf'), ''),
    writeFile(join(server.folder, 'plugins'), '[].'),
  ]);
  const ctl = async (...args: readonly string[]): Promise<string> => {
    const cookie = await readFile(join(server.folder, '.erlang.cookie'), 'utf8');
    const environment = { ERL_EPMD_PORT: `${names.port}`, HOME: server.folder };
    const { stdout } = await promisify(execFile)(
      join(dirname(command), 'rabbitmqctl'),
      ['--erlang-cookie', cookie, '--node', nodeOf(server.port), ...args],
      { env: { ...process.env, ...environment } },
    );
    return stdout;
  };
  return { names, server, ctl };
}

function nodeOf(port: number): string {
  return `relay-test-${port}@localhost`;
}

async function create(command: string): Promise<OwnBroker> {
  const { names, server, ctl } = await rabbitMqServer(command);
  const url = `amqp://guest:guest@127.0.0.1:${server.port}`;
  return ownBroker(
    server,
    {
      name: 'RabbitMQ',
      dropsRepeats: false,
      section: (port, further) => ({
        rabbitmq: { url: `amqp://guest:guest@127.0.0.1:${port}`, exchange, ...further },
      }),
      async prepare() {
        const connection = await connect(url);
        const channel = await connection.createChannel();
        await channel.assertExchange(exchange, 'topic', { durable: true });
        await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
        await channel.bindQueue(queue, exchange, '#');
        await connection.close();
      },
      troubles: [
        {
          name: 'is out of memory',
          begin: () => ctl('set_vm_memory_high_watermark', '0.0000001'),
          end: () => ctl('set_vm_memory_high_watermark', '0.6'),
        },
        {
          name: 'denies the right to publish',
          begin: () => ctl('set_permissions', 'guest', '.*', '^$', '.*'),
          end: () => ctl('set_permissions', 'guest', '.*', '.*', '.*'),
        },
      ],
      async read(onArrived, over) {
        const connection = await connect(url);
        const { promise: closed, resolve } = Promise.withResolvers<void>();
        connection.on('error', () => undefined);
        connection.on('close', resolve);
        over.addEventListener('abort', () => resolve());
        try {
          const channel = await connection.createChannel();
          channel.on('error', () => undefined);
          channel.on('close', resolve);
          await channel.prefetch(unacknowledgedMax);
          await channel.consume(queue, (message) => {
            // The queue was deleted or its leader is gone.
            if (message === null) return resolve();
            const headers = Object.entries(message.properties.headers ?? {}).flatMap(([key, value]) =>
              key.startsWith('cloudEvents:')
                ? [[key.slice('cloudEvents:'.length), String(value)] as const]
                : [],
            );
            onArrived({ attributes: Object.fromEntries(headers), body: message.content.toString() });
            channel.ack(message);
          });
          await closed;
        } finally {
          connection.close().catch(() => undefined);
        }
      },
    },
    [names],
  );
}
