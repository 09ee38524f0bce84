import { FaultProxy } from '@framework/testing';
import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';

import { attributesOf } from '../src/inbox/index.js';
import { redis } from '../src/redis.js';
import { type BrokerFixture, describeBroker, faultsOf } from './broker-suite.js';
import { brokerServer } from './servers.js';

const messageBytesMax = 100_000;
const timeoutMs = 2_000;

const server = await brokerServer('Redis', 'REDIS_URL', 'redis://127.0.0.1:6379');
describeBroker('Redis streams', server, open);

async function open(url: URL): Promise<BrokerFixture> {
  const proxy = await FaultProxy.to({ host: url.hostname, port: Number(url.port) });
  const through = new URL(url);
  through.host = `127.0.0.1:${proxy.port}`;
  const stream = `relay-${randomUUID()}`;
  const client = createClient({ url: url.href });
  await client.connect();
  const other = `${stream}.other`;
  await client.set(other, 'not a stream');
  const broker = redis({ url: through.href, messageBytesMax, timeoutMs });
  return {
    broker,
    topic: stream,
    unrouted: { topic: other },
    tooLarge: messageBytesMax,
    received: async () => {
      const entries = (await client.xRange(stream, '-', '+')) ?? [];
      return entries.map(({ message }) => ({
        attributes: attributesOf(message),
        body: message['data'] ?? '',
      }));
    },
    ...faultsOf(proxy),
    close: async () => {
      await broker.close();
      await client.del([stream, other]);
      await client.close();
      await proxy.close();
    },
  };
}
