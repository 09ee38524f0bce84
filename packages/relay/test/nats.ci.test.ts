import { FaultProxy } from '@framework/testing';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';

import { attributesOf } from '../src/inbox/index.js';
import { nats } from '../src/nats.js';
import {
  type BrokerFixture,
  type ReceivedMessage,
  describeBroker,
  faultsOf,
  messageFor,
} from './broker-suite.js';
import { brokerServer } from './servers.js';

/** The largest message that a stream of these tests takes, in bytes; the server takes larger ones. */
const messageSizeMax = 100_000;

const server = await brokerServer('NATS', 'NATS_URL', 'nats://127.0.0.1:4222');
describeBroker('NATS JetStream', server, open);

const forever = new AbortController().signal;

describe.skipIf(server === undefined)('NATS JetStream', () => {
  test('stores an event under each subject to which relays publish it, and each once', async () => {
    const fixture = await open(server ?? new URL('nats://127.0.0.1'));
    const { broker, topic } = fixture;
    const message = messageFor(topic, 'a', 1);
    for (const copy of [message, { ...message, topic: `${topic}.other` }, message])
      expect(await broker.publish([copy], forever)).toEqual([{ kind: 'confirmed' }]);
    expect((await fixture.received()).map(({ attributes }) => attributes['id'])).toEqual([
      message.id,
      message.id,
    ]);
    await fixture.close();
  });

  test('stores an event once more that an operator publishes again within the duplicate window', async () => {
    const fixture = await open(server ?? new URL('nats://127.0.0.1'));
    const { broker, topic } = fixture;
    const message = messageFor(topic, 'a', 1);
    const again = { ...message, attributes: { ...message.attributes, republished: 'change-1' } };
    for (const copy of [message, again, again])
      expect(await broker.publish([copy], forever)).toEqual([{ kind: 'confirmed' }]);
    expect((await fixture.received()).map(({ attributes }) => attributes['republished'])).toEqual([
      undefined,
      'change-1',
    ]);
    await fixture.close();
  });

  test('refuses a message whose subject has an empty part, and takes the others', async () => {
    const fixture = await open(server ?? new URL('nats://127.0.0.1'));
    const { broker, topic } = fixture;
    const messages = [messageFor(`${topic}.`, 'a', 1), messageFor(topic, 'b', 1)];
    expect(await broker.publish(messages, forever)).toMatchObject([
      { kind: 'refused', reason: expect.stringContaining('has a part that is empty') as string },
      { kind: 'confirmed' },
    ]);
    await fixture.close();
  });

  test.each(['{"ok":true}', '{"error":null}', 'null', 'stored'])(
    'does not confirm a message to whose subject something else replies %s',
    async (reply) => {
      const { host = '' } = server ?? {};
      const connection = await connect({ servers: host });
      const subject = `replies-${randomUUID()}`;
      connection.subscribe(`${subject}.>`, { callback: (_error, message) => void message.respond(reply) });
      const broker = nats({ servers: [host], stream: 'none' });
      await connection.flush();
      await expect(broker.publish([messageFor(subject, 'a', 1)], forever)).rejects.toThrow(
        'does not come from JetStream',
      );
      await broker.close();
      await connection.close();
    },
  );
});

async function open({ hostname: host, port }: URL): Promise<BrokerFixture> {
  const proxy = await FaultProxy.to({ host, port: Number(port) });
  const name = `relay-${randomUUID()}`;
  const connection = await connect({ servers: `${host}:${port}` });
  const { streams } = await jetstreamManager(connection);
  await streams.add({ name, subjects: [`${name}.>`], max_msg_size: messageSizeMax });
  const broker = nats({ servers: [`127.0.0.1:${proxy.port}`], stream: name, timeoutMs: 2_000 });
  return {
    broker,
    topic: `${name}.Counter`,
    unrouted: { topic: `nowhere-${name}` },
    tooLarge: messageSizeMax,
    received: async () => {
      const { state } = await streams.info(name);
      if (state.messages === 0) return [];
      const consumer = await jetstream(connection).consumers.get(name);
      const found: ReceivedMessage[] = [];
      for await (const message of await consumer.fetch({ max_messages: state.messages })) {
        found.push({ attributes: attributesOf(message.headers ?? []), body: message.string() });
      }
      return found;
    },
    ...faultsOf(proxy),
    close: async () => {
      await broker.close();
      await streams.delete(name);
      await connection.close();
      await proxy.close();
    },
  };
}
