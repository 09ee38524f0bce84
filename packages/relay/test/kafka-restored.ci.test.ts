import { Admin } from '@platformatic/kafka';
import { cp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import type { Broker } from '../src/index.js';
import { kafka } from '../src/kafka.js';
import { messageFor } from './broker-suite.js';
import { OwnServer, freePort } from './faults/own-server.js';
import { formatKafka, kafkaClassPath, kafkaProgram } from './kafka-program.js';
import { KafkaReader } from './kafka-reader.js';
import { skipTests } from './servers.js';

const topics = ['wallets', 'transfers'];
const forever = new AbortController().signal;
const patience = { timeout: 30_000, interval: 100 };

const classPath =
  (await kafkaClassPath().catch(() => undefined)) ?? skipTests('No Kafka: install java and mvn');

async function startServer(): Promise<OwnServer> {
  const server = await OwnServer.create((_port, folder) => kafkaProgram(classPath!, folder));
  onTestFinished(() => server.end());
  const { folder, port } = server;
  await formatKafka(classPath!, { folder, port, controllerPort: await freePort() });
  await server.start();
  return server;
}

/** Publishes a version of a model, until it is confirmed. */
async function publish(broker: Broker, topic: string, model: string, version: number): Promise<void> {
  const message = messageFor(topic, model, version);
  const kind = async () => (await broker.publish([message], forever).catch(() => []))[0]?.kind;
  await vi.waitUntil(async () => (await kind()) === 'confirmed', patience);
}

describe.skipIf(classPath === undefined)('Kafka that was restored from a backup', () => {
  test('stores what an idle producer sends, although another one has its number now', async () => {
    const server = await startServer();
    const address = `127.0.0.1:${server.port}`;
    const [data, backup] = ['data', 'backup'].map((name) => join(server.folder, name));
    const admin = new Admin({ clientId: 'test', bootstrapBrokers: [address], retries: 60, retryDelay: 250 });
    onTestFinished(() => admin.close());
    await admin.createTopics({ topics, partitions: 1, replicas: 1 });
    await vi.waitUntil(() => storedIn(admin, 'transfers').then(Boolean, () => false), patience);
    await server.stop('SIGTERM');
    await cp(data!, backup!, { recursive: true });
    await server.start();
    const [idle, other] = [0, 0].map(() => kafka({ bootstrapServers: [address] }));
    onTestFinished(async () => void (await Promise.all([idle!.close(), other!.close()])));
    await publish(idle!, 'wallets', 'a', 1);

    await server.stop('SIGKILL');
    await rm(data!, { recursive: true });
    await cp(backup!, data!, { recursive: true });
    await server.start();
    for (const topic of topics) for (const version of [1, 2, 3]) await publish(other!, topic, 'b', version);
    await publish(idle!, 'transfers', 'a', 2);
    await publish(idle!, 'wallets', 'a', 3);

    expect(await storedIn(admin, 'transfers')).toEqual(['b1', 'b2', 'b3', 'a2']);
    expect(await storedIn(admin, 'wallets')).toEqual(['b1', 'b2', 'b3', 'a3']);
  });
});

/** The models and versions in a topic, in order. */
async function storedIn(admin: Admin, topic: string): Promise<readonly string[]> {
  const stored: string[] = [];
  const reader = new KafkaReader(topic);
  const read = () =>
    reader.readOn(admin, 0, ({ attributes }) =>
      stored.push(`${attributes['subject']}${attributes['modelversion']}`),
    );
  await vi.waitUntil(read, patience);
  return stored;
}
