import { createClient } from 'redis';

import { type OwnBroker, ownBroker } from './own-broker.js';
import { OwnServer, programOf } from './own-server.js';

const stream = 'wallet-events';
const durably = ['--appendonly', 'yes', '--appendfsync', 'always', '--save', ''];
const read = { BLOCK: 500, COUNT: 1_000 };

/** Redis with a server of its own that writes every entry to its disk, if this machine has the program. */
export async function ownRedis(): Promise<(() => Promise<OwnBroker>) | undefined> {
  const command = await programOf('Redis', 'redis-server');
  return command === undefined ? undefined : () => create(command);
}

async function create(command: string): Promise<OwnBroker> {
  const server = await OwnServer.create((port, folder) => ({
    command,
    args: ['--bind', '127.0.0.1', '--port', `${port}`, '--dir', folder, ...durably],
  }));
  const url = `redis://127.0.0.1:${server.port}`;
  /** The consumer remembers where it was. */
  let lastId = '0';
  const send = async (...words: readonly string[]): Promise<void> => {
    const client = createClient({ url, socket: { reconnectStrategy: false } });
    await client.connect();
    await client.sendCommand(words);
    client.destroy();
  };
  return ownBroker(server, {
    name: 'Redis streams',
    dropsRepeats: false,
    section: (port, further) => ({ redis: { url: `redis://127.0.0.1:${port}`, stream, ...further } }),
    // The first entry creates the stream.
    prepare: () => Promise.resolve(),
    troubles: [
      {
        name: 'is out of memory',
        begin: () => send('CONFIG', 'SET', 'maxmemory', '1mb'),
        end: () => send('CONFIG', 'SET', 'maxmemory', '0'),
      },
      {
        name: 'denies the right to add entries',
        begin: () => send('ACL', 'SETUSER', 'default', '-xadd'),
        end: () => send('ACL', 'SETUSER', 'default', '+xadd'),
      },
    ],
    async read(onArrived, over) {
      const client = createClient({ url, socket: { reconnectStrategy: false } });
      client.on('error', () => undefined);
      await client.connect();
      try {
        while (!over.aborted) {
          const found = await client.xRead({ key: stream, id: lastId }, read);
          const entries = found?.flatMap(({ messages }) => messages) ?? [];
          for (const { id, message } of entries) {
            const { data = '', ...attributes } = message;
            onArrived({ attributes, body: data });
            lastId = id;
          }
        }
      } finally {
        client.destroy();
      }
    },
  });
}
