import { Admin } from '@platformatic/kafka';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import type { Broker, BrokerMessage } from '../src/index.js';
import { partitionOf } from '../src/kafka-records.js';
import { kafka } from '../src/kafka.js';
import { messageFor } from './broker-suite.js';
import { KafkaReader } from './kafka-reader.js';
import { KafkaServer } from './kafka-server.js';
import { skipTests } from './servers.js';

const topic = 'in-two-places';
const forever = new AbortController().signal;
const readyMaxMs = 30_000;
/** A server that is gone is soon taken for gone. */
const properties = { 'broker.session.timeout.ms': 1_000, 'broker.heartbeat.interval.ms': 100 };

const first = (await KafkaServer.start({ properties })) ?? skipTests('No Kafka: install java and mvn');

describe.skipIf(first === undefined)('Kafka with two servers', () => {
  let second: KafkaServer | undefined;
  let admin: Admin;
  /** Does not wait until a partition has a leader. */
  let impatient: Admin;
  let broker: Broker;
  beforeAll(async () => {
    second = await KafkaServer.start({ properties, joins: first?.controllerPort ?? 0 });
    const bootstrapServers = [first?.url.host ?? ''];
    admin = new Admin({ clientId: 'test', bootstrapBrokers: bootstrapServers, retries: 20, retryDelay: 250 });
    impatient = new Admin({ clientId: 'test', bootstrapBrokers: bootstrapServers, retries: 0 });
    const assignments = [1, 2].map((server, partition) => ({ partition, brokers: [server] }));
    await admin.createTopics({ topics: [topic], partitions: -1, replicas: -1, assignments });
    const isLed = async () => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
      return (
        topics.get(topic)?.partitions.every(({ leader }, partition) => leader === partition + 1) === true
      );
    };
    // A partition has no leader at first.
    await vi.waitUntil(isLed, { timeout: readyMaxMs, interval: 50 });
    broker = kafka({ bootstrapServers, timeoutMs: 3_000 });
  }, 2 * readyMaxMs);
  afterAll(async () => {
    await broker.close();
    await admin.close();
    await impatient.close();
    await second?.stop();
    await first?.stop();
  });

  const isLeaderless = () =>
    impatient.metadata({ topics: [topic], forceUpdate: true }).then(
      () => false,
      () => true,
    );
  const publish = async (messages: readonly BrokerMessage[]): Promise<readonly string[]> =>
    (await broker.publish(messages, forever)).map(({ kind }) => kind);

  test('has all messages of a model in its new partition once one producer knows that partitions were added', async () => {
    const growing = `growing-${randomUUID()}`;
    await admin.createTopics({ topics: [growing], partitions: 1, replicas: 1 });
    const model = Array.from({ length: 99 }, (_unused, index) => `model-${index}`).find(
      (key) => partitionOf(messageFor(growing, key, 1), 8) === 7,
    );
    const publishTogether = (count: number, version: number) =>
      Promise.all(Array.from({ length: count }, () => publish([messageFor(growing, model ?? '', version)])));
    const isConfirmed = async () =>
      (await publishTogether(2, 1)).flat().every((kind) => kind === 'confirmed');
    // A cluster that has started just now may not give out numbers to producers so far.
    await vi.waitUntil(() => isConfirmed().catch(() => false), { timeout: readyMaxMs });
    await admin.createPartitions({ topics: [{ name: growing, count: 8, assignments: null }] });
    const isReady = async () => {
      const { topics } = await admin.metadata({ topics: [growing], forceUpdate: true });
      return topics.get(growing)?.partitions.filter(({ leader }) => leader > 0).length === 8;
    };
    await vi.waitUntil(isReady, { timeout: readyMaxMs, interval: 50 });
    // Some of these producers are new.
    await publishTogether(8, 2);
    await publishTogether(8, 3);
    const versions: (string | undefined)[] = [];
    await new KafkaReader(growing, (partition) => partition === 7).readOn(admin, 0, ({ attributes }) =>
      versions.push(attributes['modelversion']),
    );
    expect(versions.filter((version) => version === '3')).toHaveLength(8);
  });

  test('has each message once of the partition that is led, while the leader of another one is down', async () => {
    const models = Array.from({ length: 20 }, (_unused, index) => `model-${index}`);
    const versionOf = (version: number) => models.map((model) => messageFor(topic, model, version));
    const confirmed = models.map(() => 'confirmed');
    expect(await publish(versionOf(1))).toEqual(confirmed);
    const targets = versionOf(2).map((message) => broker.targetOf?.(message));
    expect(new Set(targets)).toEqual(new Set([`${topic}:0`, `${topic}:1`]));
    const stored: string[] = [];
    const reader = new KafkaReader(topic, (partition) => partition === 0);
    const readOn = () =>
      reader.readOn(admin, 0, ({ attributes }) =>
        stored.push(`${attributes['subject']} ${attributes['modelversion']}`),
      );
    // Reads the metadata while both partitions have a leader; later the client would throw.
    await readOn();
    await second?.stop();
    const expected = targets.map((target) => (target === `${topic}:0` ? 'confirmed' : 'later'));
    expect(await publish(versionOf(2))).toEqual(expected);
    expect(await publish(versionOf(3))).toEqual(expected);
    // Once the cluster has noticed the loss, the client throws for the whole topic.
    await vi.waitUntil(isLeaderless, { timeout: readyMaxMs, interval: 50 });
    expect(await publish(versionOf(4))).toEqual(expected);
    expect(await publish(versionOf(5))).toEqual(expected);
    await readOn();
    const living = models.filter((_model, index) => expected[index] === 'confirmed');
    expect(stored).toEqual(
      [1, 2, 3, 4, 5].flatMap((version) => living.map((model) => `${model} ${version}`)),
    );
  });
});
