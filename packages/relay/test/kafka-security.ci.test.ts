import { ShardIdentifier, ShardedId } from '@framework/core';
import { FaultProxy } from '@framework/testing';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';

import type { Relay } from '../src/index.js';
import { openRelays } from '../src/relay-config.js';
import { Counter, CounterIncreasedEvent } from './counter.js';
import { KafkaTopic } from './kafka-topic.js';
import { envelopeOf } from './published.js';
import { briefly, lastingly, securedKafka, sessionMs, user } from './secured-kafka.js';

const secured = await securedKafka();
afterAll(() => secured?.stop());

const plain = 'PLAIN';
const mechanisms = [plain, lastingly, briefly] as const;
const signal = new AbortController().signal;
const execute = () => Promise.reject(new Error('It executes nothing'));

describe.skipIf(secured === undefined)('a relay to Kafka', () => {
  const { certificates, passwordPort = 0, certificatePort = 0, server } = secured ?? {};
  const { authority: caFile, client } = certificates ?? {};
  const withPassword = [`localhost:${passwordPort}`];
  const withCertificate = [`127.0.0.1:${certificatePort}`];
  const tls = { caFile };
  let topic: KafkaTopic;
  beforeAll(async () => {
    topic = await KafkaTopic.create(
      `secured-${randomUUID()}`,
      server?.url ?? new URL('kafka://missing'),
      100_000,
    );
  });
  afterAll(() => topic.close());

  /** Publishes an event as a configuration file says, to a topic of this test. */
  async function publish(options: object): Promise<{ readonly relay: Relay; readonly eventId: string }> {
    const section = { name: 'to-kafka', kafka: { topic: topic.name, ...options } };
    const [relay] = await openRelays({ namespace: 'com.example', relay: [section] });
    if (relay === undefined) throw new Error('It has no relay');
    onTestFinished(() => relay.broker.close());
    return { relay, ...(await publishBy(relay)) };
  }

  /** The ids of the events that the topic has. */
  async function stored(): Promise<readonly (string | undefined)[]> {
    const records = await topic.records();
    return records.map(({ attributes }) => attributes['id']);
  }

  test.each(mechanisms)('publishes over TLS as a user with a password, by %s', async (mechanism) => {
    const sasl = { mechanism, ...user };
    const { relay, eventId } = await publish({ bootstrapServers: withPassword, tls, sasl });
    expect(relay.state).toMatchObject({ kind: 'publishing', lastError: undefined });
    expect(await stored()).toContain(eventId);
  });

  test.each(mechanisms)(
    'waits with a wrong password, which its error does not contain, by %s',
    async (mechanism) => {
      const sasl = { mechanism, ...user, password: 's3cret' };
      const { relay } = await publish({ bootstrapServers: withPassword, tls, sasl });
      const { kind, lastError } = relay.state;
      expect({ kind, code: lastError?.code }).toEqual({ kind: 'waiting', code: 'broker-unavailable' });
      expect(lastError?.text).toMatch(/authentication failed/i);
      expect(lastError?.text).not.toContain('s3cret');
    },
  );

  test('publishes as a client with a certificate', async () => {
    const { cert: certFile, key: keyFile } = client ?? {};
    const withKey = { caFile, certFile, keyFile };
    const { relay, eventId } = await publish({ bootstrapServers: withCertificate, tls: withKey });
    expect(relay.state).toMatchObject({ kind: 'publishing', lastError: undefined });
    expect(await stored()).toContain(eventId);
  });

  test.each([
    ['without a certificate, if the server asks for one', withCertificate, { tls }, /alert bad certificate/],
    ['if no authority that it knows has certified the server', withPassword, { tls: true }, /certificate/],
    ['without TLS, if the server has nothing else', withPassword, {}, /requires TLS/],
    ['without a password, if the server asks for one', withPassword, { tls }, /closed/],
  ])('waits %s', async (_when, bootstrapServers, section, words) => {
    const { relay } = await publish({ bootstrapServers, ...section });
    expect(relay.state.kind).toBe('waiting');
    expect(relay.state.lastError?.text).toMatch(words);
  });

  test('waits for a topic that it may create, but that the server does not create', async () => {
    const missing = { topic: `${topic.name}.missing`, createTopics: true };
    const sasl = { mechanism: plain, ...user };
    const { relay } = await publish({ ...missing, bootstrapServers: withPassword, tls, sasl });
    expect(relay.state.lastError).toMatchObject({
      code: 'broker-unavailable',
      text: expect.stringContaining('has not been created so far') as string,
    });
  });

  test.each([
    ['asks for the server by its name', 'localhost', true],
    ['asks for no name', '127.0.0.1', false],
  ])('%s if it is given %s', async (_what, host, asked) => {
    const proxy = await FaultProxy.to({ host: 'localhost', port: passwordPort });
    onTestFinished(() => proxy.close());
    const sent: Buffer[] = [];
    proxy.judge = ({ direction, bytes }) => {
      if (direction === 'to-server') sent.push(Buffer.from(bytes));
      return 'forward';
    };
    const sasl = { mechanism: plain, ...user };
    await publish({ bootstrapServers: [`${host}:${proxy.port}`], tls, sasl });
    expect(sent.length).toBeGreaterThan(0);
    expect(Buffer.concat(sent).includes('localhost')).toBe(asked);
  });

  test('goes on publishing while the server asks for the password again and again', async () => {
    const sasl = { mechanism: briefly, ...user };
    const { relay } = await publish({ bootstrapServers: withPassword, tls, sasl });
    const endMs = performance.now() + 5 * sessionMs;
    while (performance.now() < endMs) {
      const { eventId } = await publishBy(relay);
      expect(relay.state).toMatchObject({ kind: 'publishing', lastError: undefined });
      expect(await stored()).toContain(eventId);
    }
  });

  test('goes on publishing although the server asks for the password only after a hundred days', async () => {
    const proxy = await FaultProxy.to({ host: 'localhost', port: passwordPort });
    onTestFinished(() => proxy.close());
    const sasl = { mechanism: lastingly, ...user };
    const { relay } = await publish({ bootstrapServers: [`localhost:${proxy.port}`], tls, sasl });
    for (const _each of [1, 2, 3]) await publishBy(relay);
    expect(relay.state).toMatchObject({ kind: 'publishing', lastError: undefined });
    expect(proxy.connectionCount).toBe(1);
  });
});

/** Publishes an event of a new model, if nothing prevents it. */
async function publishBy(relay: Relay): Promise<{ readonly eventId: string }> {
  const event = new CounterIncreasedEvent(ShardedId.generate(Counter, ShardIdentifier.of(1, 2)), 5);
  const envelope = envelopeOf(event);
  await relay.handleBatch([envelope], { attempt: 1, signal, execute }).catch(() => undefined);
  return { eventId: envelope.eventId };
}
