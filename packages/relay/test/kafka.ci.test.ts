import { FaultProxy, seededRandom } from '@framework/testing';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import { kafka } from '../src/kafka.js';
import { type BrokerFixture, describeBroker, faultsOf, messageFor } from './broker-suite.js';
import { KafkaServer } from './kafka-server.js';
import { KafkaTopic, advertise } from './kafka-topic.js';
import { brokerServer } from './servers.js';

const messageBytesMax = 100_000;
const forever = new AbortController().signal;

let own: KafkaServer | undefined;
const server = await brokerServer('Kafka', 'KAFKA_BROKERS', 'kafka://127.0.0.1:9092', async () => {
  own = await KafkaServer.start();
  return own?.url;
});
afterAll(() => own?.stop());

describeBroker('Kafka', server, open);

describe.skipIf(server === undefined)('Kafka', () => {
  let fixture: KafkaFixture;
  beforeAll(async () => {
    fixture = await open(server ?? new URL('kafka://127.0.0.1'));
  });
  afterAll(() => fixture.close());

  /** What the topic has of a model. */
  async function recordsOf(modelId: string) {
    const records = await fixture.stored.records();
    return records.filter(({ attributes }) => attributes['subject'] === modelId);
  }

  test('has a model in one partition over several batches, with its id as the key', async () => {
    const { broker, topic } = fixture;
    const models = Array.from({ length: 10 }, (_, index) => `model-${index}`);
    for (const version of [1, 2, 3])
      await broker.publish(
        models.map((id) => withAttributes(messageFor(topic, id, version), { partitionkey: id })),
        forever,
      );
    const partitions = new Set<number>();
    for (const model of models) {
      const records = await recordsOf(model);
      expect(records.map(({ attributes }) => attributes['modelversion'])).toEqual(['1', '2', '3']);
      expect(new Set(records.map(({ key }) => key))).toEqual(new Set([model]));
      const [partition, ...others] = new Set(records.map((record) => record.partition));
      expect(others).toEqual([]);
      partitions.add(partition ?? -1);
    }
    expect(partitions.size).toBeGreaterThan(1);
  });

  test('has the content type as a header of its own', async () => {
    const { broker, topic } = fixture;
    const message = withAttributes(messageFor(topic, 'typed', 1), { datacontenttype: 'text/json' });
    await broker.publish([message], forever);
    const [record] = await recordsOf('typed');
    expect(record?.contentType).toBe('text/json');
    expect(record?.attributes).not.toHaveProperty('datacontenttype');
  });

  test.each(['gzip', 'zstd'] as const)('takes batches that are compressed by %s', async (compression) => {
    const { proxy, topic } = fixture;
    const broker = kafka({ bootstrapServers: [`127.0.0.1:${proxy.port}`], client: { compression } });
    const versions = Array.from({ length: 100 }, (_, index) => index);
    const body = JSON.stringify('x'.repeat(messageBytesMax / versions.length));
    const messages = versions.map((version) => messageFor(topic, compression, version, body));
    expect(await broker.publish(messages, forever)).toEqual(messages.map(() => ({ kind: 'confirmed' })));
    const stored = await recordsOf(compression);
    expect(stored.map(({ attributes }) => Number(attributes['modelversion']))).toEqual(versions);
    expect(new Set(stored.map((record) => record.body))).toEqual(new Set([body]));
    await broker.close();
  });

  test('waits for topics that do not exist, refuses impossible names, and takes the others', async () => {
    const { broker, topic } = fixture;
    const messages = [
      messageFor(`${topic}.missing`, 'p', 1),
      messageFor('not a topic', 'q', 1),
      messageFor(topic, 'p', 2),
      messageFor(topic, 'r', 1),
      messageFor('x'.repeat(40_000), 's', 1),
    ];
    expect(await broker.publish(messages, forever)).toMatchObject([
      { kind: 'later', of: 'target', reason: `the topic ${topic}.missing does not exist` },
      { kind: 'refused', reason: expect.stringContaining('invalid topic') as string },
      { kind: 'held-back' },
      { kind: 'confirmed' },
      { kind: 'refused', reason: 'the name of the topic has 40000 characters, more than 249' },
    ]);
  });

  test.skipIf(own === undefined)('creates a topic if it is asked to', async () => {
    const { proxy, topic } = fixture;
    const bootstrapServers = [`127.0.0.1:${proxy.port}`];
    const broker = kafka({ bootstrapServers, client: { autocreateTopics: true } });
    const message = messageFor(`${topic}.created`, 'created', 1);
    const patience = { timeout: 30_000, interval: 20 };
    const publish = () => broker.publish([message], forever).catch(() => undefined);
    expect(await vi.waitUntil(publish, patience)).toEqual([{ kind: 'confirmed' }]);
    await broker.close();
  });

  test.skipIf(own === undefined)(
    'waits until a topic may be written, and takes messages for others meanwhile',
    async () => {
      const { broker, topic, url } = fixture;
      const forbidden = await KafkaTopic.create(`${topic}.forbidden`, url, messageBytesMax);
      await forbidden.forbidWriting();
      const messages = [
        messageFor(forbidden.name, 'forbidden', 1),
        messageFor(topic, 'allowed', 1),
        messageFor(topic, 'forbidden', 2),
      ];
      await expect
        .poll(() => broker.publish(messages, forever))
        .toMatchObject([
          { kind: 'later', of: 'target', reason: 'Topic authorization failed.' },
          { kind: 'confirmed' },
          { kind: 'held-back' },
        ]);
      const told = kafka({ bootstrapServers: [url.host], topic: forbidden.name });
      await expect(told.ping()).rejects.toThrow('Topic authorization failed.');
      await told.close();
      await broker.ping();
      await forbidden.close();
    },
  );

  test('takes what a lower limit of the topic refuses once the limit is raised', async () => {
    const { url } = fixture;
    const limited = await KafkaTopic.create(`relay-${randomUUID()}`, url, 10_000);
    const broker = kafka({ bootstrapServers: [url.host], topic: limited.name });
    const messages = [1, 2].map((version) =>
      messageFor('t', 'limited', version, JSON.stringify('x'.repeat(20_000))),
    );
    expect(await broker.publish(messages, forever)).toMatchObject([
      { kind: 'refused', reason: expect.stringContaining('larger') as string },
      { kind: 'held-back' },
    ]);
    await limited.limit(messageBytesMax);
    await expect
      .poll(() => broker.publish(messages, forever))
      .toEqual([{ kind: 'confirmed' }, { kind: 'confirmed' }]);
    await broker.close();
    await limited.close();
  });

  test('refuses only the message that is too large in the middle of a batch', async () => {
    const { broker, topic } = fixture;
    const body = JSON.stringify('x'.repeat(2_000));
    const large = JSON.stringify('x'.repeat(2 * messageBytesMax));
    const messages = Array.from({ length: 1_000 }, (_, index) =>
      messageFor(topic, `s${index % 100}`, Math.floor(index / 100), index === 507 ? large : body),
    );
    const outcomes = await broker.publish(messages, forever);
    expect(outcomes[507]).toMatchObject({
      kind: 'refused',
      reason: expect.stringContaining('larger') as string,
    });
    const unpublished = outcomes.flatMap(({ kind }, index) => (kind === 'confirmed' ? [] : [index]));
    expect(unpublished).toEqual([507, 607, 707, 807, 907]);
    const versions = (await recordsOf('s8')).map(({ attributes }) => Number(attributes['modelversion']));
    expect(versions).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(await recordsOf('s7')).toHaveLength(5);
  });

  test('takes a message for another topic only after the one before it of the same model', async () => {
    const { broker, topic } = fixture;
    const other = await KafkaTopic.create(`${topic}.other`, server ?? fixture.url, messageBytesMax);
    const large = JSON.stringify('x'.repeat(messageBytesMax));
    const messages = [
      messageFor(other.name, 'u', 1),
      messageFor(topic, 'u', 2),
      messageFor(other.name, 'u', 3, large),
      messageFor(topic, 'u', 4),
    ];
    const outcomes = await broker.publish(messages, forever);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['confirmed', 'confirmed', 'refused', 'held-back']);
    expect(await recordsOf('u')).toHaveLength(1);
    expect(await other.records()).toHaveLength(1);
    await other.close();
  });

  test('takes the batches of several callers at the same time, although messages of one are refused', async () => {
    const { broker, topic } = fixture;
    const large = JSON.stringify('x'.repeat(messageBytesMax));
    const batches = Array.from({ length: 8 }, (_, caller) =>
      Array.from({ length: 50 }, (__, version) =>
        messageFor(topic, `v${caller}`, version, caller === 3 && version === 20 ? large : '{}'),
      ),
    );
    const outcomes = await Promise.all(batches.map((batch) => broker.publish(batch, forever)));
    for (const [caller, ofCaller] of outcomes.entries()) {
      const confirmed = ofCaller.filter(({ kind }) => kind === 'confirmed');
      expect(confirmed).toHaveLength(caller === 3 ? 20 : 50);
      const versions = (await recordsOf(`v${caller}`)).map(({ attributes }) => attributes['modelversion']);
      expect(versions).toEqual(confirmed.map((_, version) => `${version}`));
    }
  });

  test('stores messages once whose confirmation is lost', async () => {
    const { broker, topic, proxy } = fixture;
    const messages = [messageFor(topic, 'w', 1), messageFor(topic, 'w', 2)];
    const { judge } = proxy;
    let cutCount = 0;
    proxy.judge = (message) => {
      const verdict = judge(message);
      if (cutCount > 0 || !message.bytes.includes(messages[1]?.id ?? '')) return verdict;
      cutCount += 1;
      return 'forward-and-cut';
    };
    const outcomes = await broker.publish(messages, forever);
    proxy.judge = judge;
    expect(cutCount).toBe(1);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['confirmed', 'confirmed']);
    const versions = (await recordsOf('w')).map(({ attributes }) => attributes['modelversion']);
    expect(versions).toEqual(['1', '2']);
  });

  test('has every message, and the first arrivals of each model in order, although connections break at random', async () => {
    const { broker, topic, proxy } = fixture;
    const { judge } = proxy;
    const seed = Date.now() % 1_000_000;
    const random = seededRandom(seed);
    let cutCount = 0;
    proxy.judge = (message) => {
      const verdict = judge(message);
      const number = random();
      if (number > 0.16) return verdict;
      cutCount += 1;
      return number < 0.08 ? 'cut' : 'forward-and-cut';
    };
    const models = Array.from({ length: 20 }, (_, index) => `random-${index}`);
    const batches = Array.from({ length: 30 }, (_, batch) =>
      [0, 1].flatMap((of) => models.map((id) => messageFor(topic, id, 2 * batch + of))),
    );
    const patience = { timeout: 60_000, interval: 1 };
    for (let waiting of batches)
      await vi.waitUntil(async () => {
        const outcomes = await broker.publish(waiting, forever).catch(() => []);
        if (outcomes.length > 0)
          waiting = waiting.filter((_message, index) => outcomes[index]?.kind !== 'confirmed');
        return waiting.length === 0;
      }, patience);
    proxy.judge = judge;
    expect(cutCount, `seed ${seed}`).toBeGreaterThan(0);
    for (const model of models) {
      const versions = (await recordsOf(model)).map(({ attributes }) => attributes['modelversion']);
      expect([...new Set(versions)], `seed ${seed}`).toEqual(
        Array.from({ length: 60 }, (_, each) => `${each}`),
      );
    }
  });

  test('rejects when a server is silent for longer than a request may take', async () => {
    const { proxy, topic } = fixture;
    const bootstrapServers = [`127.0.0.1:${proxy.port}`];
    const broker = kafka({ bootstrapServers, timeoutMs: 200 });
    proxy.silence();
    await expect(broker.publish([messageFor(topic, 'y', 1)], forever)).rejects.toThrow('200 ms');
    proxy.resume();
    await broker.close();
  });

  test('reaches the cluster although the first of its servers accepts connections and says nothing', async () => {
    const { proxy, topic } = fixture;
    const silent = await FaultProxy.to({ host: '127.0.0.1', port: proxy.port });
    silent.silence();
    const bootstrapServers = [silent, proxy].map(({ port }) => `127.0.0.1:${port}`);
    const broker = kafka({ bootstrapServers, timeoutMs: 1_000 });
    const publish = () => broker.publish([messageFor(topic, 'silent', 1)], forever).catch(() => undefined);
    expect(await vi.waitUntil(publish, { timeout: 10_000, interval: 1 })).toEqual([{ kind: 'confirmed' }]);
    await broker.close();
    await silent.close();
  });

  test('refuses calls after it was closed', async () => {
    const { proxy, topic } = fixture;
    const broker = kafka({ bootstrapServers: [`127.0.0.1:${proxy.port}`] });
    await broker.ping();
    await broker.close();
    await expect(broker.publish([messageFor(topic, 'z', 1)], forever)).rejects.toThrow('closed');
  });
});

interface KafkaFixture extends BrokerFixture {
  readonly proxy: FaultProxy;
  readonly stored: KafkaTopic;
  readonly url: URL;
}

async function open(url: URL): Promise<KafkaFixture> {
  const proxy = await FaultProxy.to({ host: url.hostname, port: Number(url.port) });
  const stored = await KafkaTopic.create(`relay-${randomUUID()}`, url, messageBytesMax);
  advertise(proxy, await stored.advertised());
  const broker = kafka({ bootstrapServers: [`127.0.0.1:${proxy.port}`] });
  return {
    broker,
    topic: stored.name,
    unrouted: { topic: `${stored.name}.missing` },
    tooLarge: messageBytesMax,
    received: () => stored.records(),
    ...faultsOf(proxy),
    close: async () => {
      await broker.close();
      await stored.close();
      await proxy.close();
    },
    proxy,
    stored,
    url,
  };
}

function withAttributes<M extends { readonly attributes: Readonly<Record<string, string>> }>(
  message: M,
  attributes: Readonly<Record<string, string>>,
): M {
  return { ...message, attributes: { ...message.attributes, ...attributes } };
}
