import { once } from 'node:events';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { Broker } from '../src/index.js';
import { kafka } from '../src/kafka.js';
import { nats } from '../src/nats.js';
import { rabbitmq } from '../src/rabbitmq.js';
import { redis } from '../src/redis.js';
import { webhooks } from '../src/webhooks.js';

const timeoutMs = 300;
const secret = `whsec_${Buffer.from('a secret of at least 24 bytes').toString('base64')}`;

const brokers: Readonly<Record<string, (address: string) => Broker>> = {
  NATS: (address) => nats({ servers: [address], stream: 's', connection: { timeout: timeoutMs } }),
  RabbitMQ: (address) => rabbitmq({ url: `amqp://${address}`, exchange: 'e', timeoutMs }),
  Redis: (address) => redis({ url: `redis://${address}`, timeoutMs }),
  Kafka: (address) => kafka({ bootstrapServers: [address], timeoutMs }),
  'A webhook': (address) => webhooks({ url: `http://${address}`, secret, timeoutMs }),
};

describe('a server that accepts connections and says nothing', () => {
  const server = createServer();
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
    socket.resume();
  });
  let address = '';
  beforeAll(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  test.each(Object.entries(brokers))('keeps nobody waiting who uses it as %s', async (name, open) => {
    const before = sockets.size;
    const broker = open(address);
    await expect(broker.ping()).rejects.toBeInstanceOf(Error);
    await expect(broker.ping()).rejects.toBeInstanceOf(Error);
    const waiting = broker.ping().catch(() => undefined);
    await broker.close();
    await waiting;
    // The client of NATS never ends a socket on which it has received nothing.
    const leftMax = name === 'NATS' ? sockets.size : before;
    await expect.poll(() => sockets.size, { timeout: 10_000 }).toBeLessThanOrEqual(leftMax);
  });
});

test.each([
  ['NATS', nats({ servers: [], stream: 's', timeoutMs: 5_000 }), 500_000],
  ['RabbitMQ', rabbitmq({ url: 'amqp://127.0.0.1', exchange: 'e', timeoutMs: 5_000 }), 500_000],
  ['A webhook', webhooks({ url: 'http://127.0.0.1', secret, timeoutMs: 5_000 }), 500_000],
  ['Redis', redis({ url: 'redis://127.0.0.1', timeoutMs: 5_000 }), 5_000_000],
  ['Kafka', kafka({ bootstrapServers: ['127.0.0.1'], timeoutMs: 5_000 }), 5_000_000],
])('%s may take as long for a batch as for each of its messages', (_name, { limits }, callMs) => {
  expect(limits?.timeoutMs).toBe(callMs);
});
