import { randomUUID } from 'node:crypto';
import { kafka } from '@framework/relay/kafka';
import { Admin, ListOffsetTimestamps, Producer } from '@platformatic/kafka';
import { type BenchBroker, batches, serverOf } from '../bench-broker.js';

const server = serverOf('KAFKA_BROKERS', 'kafka://127.0.0.1:9092');
const bootstrapServers = [server.host];
const partitionCount = 3;
const clientId = 'bench';

/** Kafka with an idempotent producer, whose messages all in-sync replicas must have. */
export const kafkaBroker: BenchBroker = {
  name: 'Kafka',
  server,
  perSecondMin: 30_000,
  open: async () => {
    const admin = new Admin({ clientId, bootstrapBrokers: bootstrapServers, retries: 10, retryDelay: 100 });
    const topic = `bench-${randomUUID()}`;
    await admin.createTopics({ topics: [topic], partitions: partitionCount, replicas: 1 });
    // Without serializers, the client takes keys, values and headers as bytes, which costs less than texts.
    const producer = new Producer({
      clientId,
      bootstrapBrokers: bootstrapServers,
      idempotent: true,
      retries: 10,
      retryDelay: 100,
    });
    return {
      topic,
      broker: kafka({ bootstrapServers, topic }),
      publishBare: async (messages) => {
        for (const batch of batches(messages)) {
          await producer.send({
            messages: batch.map(({ attributes, body }) => ({
              topic,
              key: Buffer.from(attributes['partitionkey'] ?? ''),
              value: Buffer.from(body),
              headers: new Map(
                Object.entries(attributes).map(
                  ([name, value]) => [Buffer.from(`ce_${name}`), Buffer.from(value)] as const,
                ),
              ),
            })),
          });
        }
      },
      count: async () => {
        const partitions = Array.from({ length: partitionCount }, (_, partitionIndex) => ({
          partitionIndex,
          timestamp: ListOffsetTimestamps.LATEST,
        }));
        const [listed] = await admin.listOffsets({ topics: [{ name: topic, partitions }] });
        return listed?.partitions.reduce((sum, { offset }) => sum + Number(offset), 0) ?? 0;
      },
      remove: async () => {
        await producer.close();
        await admin.deleteTopics({ topics: [topic] });
        await admin.close();
      },
    };
  },
};
