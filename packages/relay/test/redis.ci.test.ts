import { FaultProxy } from '@framework/testing';
import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';
import { expect, test } from 'vitest';

import { attributesOf } from '../src/inbox/index.js';
import { redis } from '../src/redis.js';
import { type BrokerFixture, describeBroker, faultsOf, messageFor } from './broker-suite.js';
import { brokerServer } from './servers.js';

const messageBytesMax = 100_000;
const timeoutMs = 2_000;

const server = await brokerServer('Redis', 'REDIS_URL', 'redis://127.0.0.1:6379');
describeBroker('Redis streams', server, open);

test.skipIf(server === undefined)(
  'Redis stores nothing of a model behind a message for a stream that it does not take',
  async () => {
    const fixture = await open(server ?? new URL('redis://127.0.0.1'));
    const { broker, topic, unrouted } = fixture;
    const messages = [
      messageFor(topic, 'a', 1),
      messageFor(unrouted.topic ?? '', 'a', 2),
      messageFor(topic, 'a', 3),
      messageFor(topic, 'b', 1),
    ];
    const outcomes = await broker.publish(messages, new AbortController().signal);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['confirmed', 'later', 'held-back', 'confirmed']);
    const stored = (await fixture.received()).map(({ attributes }) => attributes['id']);
    expect(new Set(stored)).toEqual(new Set([messages[0]?.id, messages[3]?.id]));
    await fixture.close();
  },
);

test.skipIf(server === undefined).each([
  ['a text', (prefix: string) => prefix],
  ['bytes', (prefix: string) => Buffer.from(prefix)],
])('Redis streams have the prefix of keys that its client has as %s', async (_form, given) => {
  const url = server?.href ?? '';
  const prefix = `relay-${randomUUID()}:`;
  const client = createClient({ url });
  await client.connect();
  const broker = redis({ url, client: { keyPrefix: given(prefix) } });
  await broker.publish([messageFor('topic', 'a', 1)], new AbortController().signal);
  expect(await client.xLen(`${prefix}topic`)).toBe(1);
  await broker.close();
  await client.del(`${prefix}topic`);
  await client.close();
});

test.skipIf(server === undefined)('a Redis stream keeps about as many entries as it may', async () => {
  const url = server?.href ?? '';
  const stream = `relay-${randomUUID()}`;
  const client = createClient({ url });
  await client.connect();
  const broker = redis({ url, stream, maxLength: 100 });
  const messages = Array.from({ length: 1_000 }, (_, index) => messageFor('topic', `m${index}`, 1));
  const outcomes = await broker.publish(messages, new AbortController().signal);
  expect(new Set(outcomes.map(({ kind }) => kind))).toEqual(new Set(['confirmed']));
  const length = await client.xLen(stream);
  expect(length).toBeGreaterThanOrEqual(100);
  expect(length).toBeLessThan(300);
  await broker.close();
  await client.del(stream);
  await client.close();
});

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
