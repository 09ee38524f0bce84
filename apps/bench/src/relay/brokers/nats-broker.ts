import { randomUUID } from 'node:crypto';
import { nats } from '@framework/relay/nats';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect, headers } from '@nats-io/transport-node';
import { type BenchBroker, batches, serverOf } from '../bench-broker.js';

const server = serverOf('NATS_URL', 'nats://127.0.0.1:4222');

/** NATS JetStream with a stream in files. */
export const natsBroker: BenchBroker = {
  name: 'NATS JetStream',
  server,
  perSecondMin: 20_000,
  open: async () => {
    const connection = await connect({ servers: server.href });
    const manager = await jetstreamManager(connection);
    const stream = `bench-${randomUUID()}`;
    await manager.streams.add({ name: stream, subjects: [`${stream}.>`], storage: 'file' });
    const client = jetstream(connection);
    return {
      topic: stream,
      broker: nats({ servers: [server.href], stream }),
      publishBare: async (messages) => {
        for (const batch of batches(messages)) {
          await Promise.all(
            batch.map(({ id, eventType, attributes, body }) => {
              const made = headers();
              made.set('Nats-Msg-Id', id);
              for (const [name, value] of Object.entries(attributes)) made.set(`ce-${name}`, value);
              return client.publish(`${stream}.${eventType}`, body, { headers: made });
            }),
          );
        }
      },
      count: async () => (await manager.streams.info(stream)).state.messages,
      remove: async () => {
        await manager.streams.delete(stream);
        await connection.close();
      },
    };
  },
};
