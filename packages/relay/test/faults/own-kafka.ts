import { Admin } from '@platformatic/kafka';
import { vi } from 'vitest';

import { formatKafka, kafkaClassPath, kafkaProgram } from '../kafka-program.js';
import { KafkaReader } from '../kafka-reader.js';
import { type OwnBroker, ownBroker } from './own-broker.js';
import { OwnServer, freePort, skipFaultTests } from './own-server.js';

const topic = 'wallet-events';
/** Several, so that only the key keeps the events of a wallet in order. */
const partitions = 4;
/** A server that was killed is soon taken for gone, so that it may come back. */
const quickSessions = { 'broker.session.timeout.ms': 1_000, 'broker.heartbeat.interval.ms': 100 } as const;
const readyMaxMs = 60_000;
const waitMs = 500;

/** Kafka with a server of its own, if this machine has Java, and Maven to get the jars. */
export async function ownKafka(): Promise<(() => Promise<OwnBroker>) | undefined> {
  try {
    const classPath = await kafkaClassPath();
    return () => create(classPath);
  } catch (error) {
    const [reason = ''] = String(error).split('\n');
    return skipFaultTests(`No Kafka: install java and mvn (${reason})`);
  }
}

async function create(classPath: string): Promise<OwnBroker> {
  const server = await OwnServer.create((_port, folder) => kafkaProgram(classPath, folder));
  const { folder, port } = server;
  await formatKafka(
    classPath,
    { folder, port, controllerPort: await freePort() },
    { properties: quickSessions },
  );
  const bootstrapBrokers = [`127.0.0.1:${port}`];
  const connect = (retries: number): Admin =>
    new Admin({ clientId: 'reader', bootstrapBrokers, retries, retryDelay: 250 });
  /** The consumer remembers where it was. */
  const reader = new KafkaReader(topic);
  return ownBroker(server, {
    name: 'Kafka',
    dropsRepeats: false,
    section: (at, further) => ({
      kafka: { bootstrapServers: [`127.0.0.1:${at}`], topic, ...further },
    }),
    async prepare() {
      // A server accepts connections before it answers.
      const admin = connect(60);
      await admin.createTopics({ topics: [topic], partitions, replicas: 1 });
      // A partition has no leader at first.
      const patience = { timeout: readyMaxMs, interval: 100 };
      await vi.waitFor(() => reader.readOn(admin, 0, () => undefined), patience);
      await admin.close();
    },
    async read(onArrived, over) {
      const admin = connect(0);
      try {
        while (!over.aborted) await reader.readOn(admin, waitMs, onArrived);
      } finally {
        await admin.close();
      }
    },
  });
}
