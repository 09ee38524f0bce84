import { FaultProxy } from '@framework/testing';
import { connect } from 'amqplib';
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';

import { attributesOf } from '../src/inbox/index.js';
import { rabbitmq } from '../src/rabbitmq.js';
import {
  type BrokerFixture,
  type ReceivedMessage,
  describeBroker,
  faultsOf,
  messageFor,
} from './broker-suite.js';
import { brokerServer } from './servers.js';

const messageBytesMax = 100_000;
const timeoutMs = 2_000;

const server = await brokerServer('RabbitMQ', 'RABBITMQ_URL', 'amqp://guest:guest@127.0.0.1:5672');
describeBroker('RabbitMQ', server, open);

test.skipIf(server === undefined)(
  'RabbitMQ refuses messages whose routing key or attributes are too long',
  async () => {
    const fixture = await open(server ?? new URL('amqp://127.0.0.1'));
    const messages = [
      { ...messageFor(fixture.topic, 'a', 1), eventType: 'E'.repeat(300) },
      messageFor(fixture.topic, 'b', 1),
      messageFor(fixture.topic, 'c'.repeat(100_000), 1),
    ];
    const outcomes = await fixture.broker.publish(messages, new AbortController().signal);
    expect(outcomes).toMatchObject([
      { kind: 'refused', reason: expect.stringContaining('up to 255') as string },
      { kind: 'confirmed' },
      { kind: 'refused', reason: expect.stringContaining('exceeds') as string },
    ]);
    await fixture.close();
  },
);

async function open(url: URL): Promise<BrokerFixture> {
  const proxy = await FaultProxy.to({ host: url.hostname, port: Number(url.port) });
  const through = new URL(url);
  through.host = `127.0.0.1:${proxy.port}`;
  const name = `relay-${randomUUID()}`;
  const connection = await connect(url.href);
  const channel = await connection.createChannel();
  await channel.assertExchange(name, 'topic', { durable: true });
  await channel.assertQueue(name, { durable: true });
  await channel.bindQueue(name, name, 'Counter.*');
  const broker = rabbitmq({ url: through.href, exchange: name, messageBytesMax, timeoutMs });
  const found: ReceivedMessage[] = [];
  return {
    broker,
    topic: `${name}.Counter`,
    unrouted: { attributes: { modelname: 'Nothing' } },
    tooLarge: messageBytesMax,
    received: async () => {
      for (let message = await channel.get(name, { noAck: true }); message !== false;) {
        const { headers = {} } = message.properties;
        found.push({ attributes: attributesOf(headers), body: message.content.toString() });
        message = await channel.get(name, { noAck: true });
      }
      return found;
    },
    ...faultsOf(proxy),
    close: async () => {
      await broker.close();
      await channel.deleteQueue(name);
      await channel.deleteExchange(name);
      await connection.close();
      await proxy.close();
    },
  };
}
