import { randomUUID } from 'node:crypto';
import { redis } from '@framework/relay/redis';
import { createClient } from 'redis';
import { type BenchBroker, batches, serverOf } from '../bench-broker.js';

const server = serverOf('REDIS_URL', 'redis://127.0.0.1:6379');

/** Redis streams, a transaction for each batch. */
export const redisBroker: BenchBroker = {
  name: 'Redis streams',
  server,
  perSecondMin: 30_000,
  open: async () => {
    const client = createClient({ url: server.href });
    await client.connect();
    const stream = `bench-${randomUUID()}`;
    return {
      topic: stream,
      broker: redis({ url: server.href, stream }),
      publishBare: async (messages) => {
        for (const batch of batches(messages)) {
          const transaction = client.multi();
          for (const { attributes, body } of batch)
            transaction.xAdd(stream, '*', { ...attributes, data: Buffer.from(body) });
          await transaction.exec();
        }
      },
      count: () => client.xLen(stream),
      remove: async () => {
        await client.del(stream);
        await client.close();
      },
    };
  },
};
