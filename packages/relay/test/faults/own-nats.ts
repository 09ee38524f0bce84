import {
  DeliverPolicy,
  DiscardPolicy,
  type StreamUpdateConfig,
  jetstream,
  jetstreamManager,
} from '@nats-io/jetstream';
import { type NatsConnection, connect } from '@nats-io/transport-node';

import { type OwnBroker, ownBroker } from './own-broker.js';
import { OwnServer, programOf } from './own-server.js';

const stream = 'wallet-events';

/** NATS JetStream with a server of its own, if this machine has the program. */
export async function ownNats(): Promise<(() => Promise<OwnBroker>) | undefined> {
  const command = await programOf('NATS', 'nats-server');
  return command === undefined ? undefined : () => create(command);
}

async function create(command: string): Promise<OwnBroker> {
  const server = await OwnServer.create((port, folder) => ({
    command,
    args: ['--addr', '127.0.0.1', '--port', `${port}`, '--jetstream', '--store_dir', folder],
  }));
  const servers = [`nats://127.0.0.1:${server.port}`];
  /** The consumer remembers where it was: acknowledgements that are lost would let later messages overtake. */
  let next = 1;
  const open = (): Promise<NatsConnection> => connect({ servers, reconnect: false });
  const update = async (change: Partial<StreamUpdateConfig>): Promise<void> => {
    const connection = await open();
    await (await jetstreamManager(connection)).streams.update(stream, change);
    await connection.close();
  };
  return ownBroker(server, {
    name: 'NATS JetStream',
    dropsRepeats: true,
    section: (port, further) => ({ nats: { servers: [`nats://127.0.0.1:${port}`], stream, ...further } }),
    async prepare() {
      const connection = await open();
      const manager = await jetstreamManager(connection);
      await manager.streams.add({ name: stream, subjects: ['com.example.>'] });
      await connection.close();
    },
    troubles: [
      {
        name: 'is full',
        begin: () => update({ max_msgs: 1, discard: DiscardPolicy.New }),
        end: () => update({ max_msgs: -1, discard: DiscardPolicy.Old }),
      },
      {
        name: 'has no stream for the subjects',
        begin: () => update({ subjects: ['others.>'] }),
        end: () => update({ subjects: ['com.example.>'] }),
      },
    ],
    async read(onArrived, over) {
      const connection = await open();
      try {
        const messages = await jetstream(connection)
          .consumers.get(stream, { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: next })
          .then((consumer) => consumer.consume());
        const stop = (): void => messages.stop();
        void connection.closed().then(stop);
        over.addEventListener('abort', stop);
        for await (const message of messages) {
          const headers = [...(message.headers ?? [])].flatMap(([key, [value = '']]) =>
            key.startsWith('ce-') ? [[key.slice(3), decodeURIComponent(value)] as const] : [],
          );
          onArrived({ attributes: Object.fromEntries(headers), body: message.string() });
          next = message.seq + 1;
        }
      } finally {
        await connection.close();
      }
    },
  });
}
