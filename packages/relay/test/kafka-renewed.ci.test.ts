import { Admin } from '@platformatic/kafka';
import { afterAll, describe, expect, test, vi } from 'vitest';

import type { Broker } from '../src/index.js';
import { kafka } from '../src/kafka.js';
import { messageFor } from './broker-suite.js';
import { KafkaReader } from './kafka-reader.js';
import { KafkaServer } from './kafka-server.js';
import { skipTests } from './servers.js';

const topic = 'renewed';
const forever = new AbortController().signal;
const patience = { timeout: 30_000, interval: 50 };

const first = (await KafkaServer.start()) ?? skipTests('No Kafka: install java and mvn');

/** Creates the topic at a server, and waits until it can be written. */
async function createTopic({ url }: KafkaServer): Promise<Admin> {
  const admin = new Admin({ clientId: 'test', bootstrapBrokers: [url.host], retries: 20, retryDelay: 250 });
  await admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 });
  const isLed = async () => {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
    return topics.get(topic)?.partitions[0]?.leader === 1;
  };
  await vi.waitUntil(isLed, patience);
  return admin;
}

describe.skipIf(first === undefined)('Kafka that was set up anew', () => {
  const opened: Broker[] = [];
  let second: KafkaServer | undefined;
  afterAll(async () => {
    await Promise.all(opened.map((broker) => broker.close()));
    await second?.stop();
  });

  test('stores what an idle producer sends, although another one has its number now', async () => {
    const { url, controllerPort } = first!;
    const [idle, other] = [0, 0].map(() => kafka({ bootstrapServers: [url.host] }));
    opened.push(idle!, other!);
    const publish = async (broker: Broker, model: string, version: number): Promise<string> => {
      const [outcome] = await broker.publish([messageFor(topic, model, version)], forever);
      return outcome?.kind ?? '';
    };
    await (await createTopic(first!)).close();
    for (const version of [1, 2]) expect(await publish(idle!, 'a', version)).toBe('confirmed');
    await first!.stop();
    second = await KafkaServer.start({ ports: [Number(url.port), controllerPort] });
    const admin = await createTopic(second!);
    for (const version of [1, 2, 3]) expect(await publish(other!, 'b', version)).toBe('confirmed');
    const isConfirmed = async () => (await publish(idle!, 'a', 3).catch(() => '')) === 'confirmed';
    await vi.waitUntil(isConfirmed, patience);
    const stored: string[] = [];
    const reader = new KafkaReader(topic);
    const read = () =>
      reader.readOn(admin, 0, ({ attributes }) =>
        stored.push(`${attributes['subject']}${attributes['modelversion']}`),
      );
    await vi.waitUntil(read, patience);
    expect(stored).toEqual(['b1', 'b2', 'b3', 'a3']);
    await admin.close();
  });
});
