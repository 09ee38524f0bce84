import { ShardIdentifier, ShardedId } from '@framework/core';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';

import { keptInMemory } from '../../core/test/kept-in-memory.js';
import { type Broker, relay } from '../src/index.js';
import { kafka } from '../src/kafka.js';
import { nats } from '../src/nats.js';
import { rabbitmq } from '../src/rabbitmq.js';
import { redis } from '../src/redis.js';
import { webhooks } from '../src/webhooks.js';
import { Counter, CounterIncreasedEvent } from './counter.js';
import { PretendedKafka } from './pretended-kafka.js';
import { envelopeOf } from './published.js';
import { ScriptedNats } from './scripted-nats.js';
import { ScriptedRabbitMq } from './scripted-rabbitmq.js';
import { ScriptedRedis } from './scripted-redis.js';

const roundCount = 30;
const batchSize = 5;
/** A client may keep what it has sent last. */
const lastRounds = 2;
const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

/** Starts a server that stops with the test. */
async function started<Server extends { stop(): Promise<void> }>(starting: Promise<Server>): Promise<Server> {
  const server = await starting;
  onTestFinished(() => server.stop());
  return server;
}

const brokers: readonly [string, () => Promise<Broker>][] = [
  ['Kafka', async () => kafka({ bootstrapServers: [(await started(PretendedKafka.start())).address] })],
  ['NATS', async () => nats({ servers: [(await started(ScriptedNats.start())).address], stream: 's' })],
  ['RabbitMQ', async () => rabbitmq({ url: (await started(ScriptedRabbitMq.start())).url, exchange: 'e' })],
  ['Redis', async () => redis({ url: (await started(ScriptedRedis.start())).url })],
  [
    'webhooks',
    async () => {
      const server = createServer((_request, response) => response.writeHead(204).end());
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      onTestFinished(() => void server.close());
      const { port } = server.address() as AddressInfo;
      return webhooks({ url: `http://127.0.0.1:${port}`, secret });
    },
  ],
];

const execute = (): Promise<never> => Promise.reject(new Error('A relay executes nothing'));

test.each(brokers)('a relay to %s keeps nothing of what it has published', async (_name, open) => {
  const broker = await open();
  onTestFinished(() => broker.close());
  const rounds: WeakRef<object>[][] = [];
  const publish = broker.publish.bind(broker);
  broker.publish = (messages, signal) => {
    rounds.at(-1)?.push(...messages.map((message) => new WeakRef(message)), new WeakRef(signal));
    return publish(messages, signal);
  };
  const publisher = relay({ name: 'to-broker', broker, startFrom: 'beginning' });
  for (let round = 0; round < roundCount; round++) {
    const envelopes = Array.from({ length: batchSize }, () =>
      envelopeOf(new CounterIncreasedEvent(ShardedId.generate(Counter, ShardIdentifier.of(1, 2)), round)),
    );
    const { signal } = new AbortController();
    rounds.push(envelopes.map((envelope) => new WeakRef(envelope)));
    await publisher.handleBatch(envelopes, { attempt: 1, signal, execute });
    await pause(1);
  }
  const earlier = rounds.slice(0, -lastRounds).flat();
  expect(earlier.length).toBeGreaterThanOrEqual((roundCount - lastRounds) * (2 * batchSize + 1));
  expect(await keptInMemory(earlier)).toBe(0);
});
