import { randomUUID } from 'node:crypto';
import { rabbitmq } from '@framework/relay/rabbitmq';
import { connect } from 'amqplib';
import { type BenchBroker, batches, serverOf } from '../bench-broker.js';

const server = serverOf('RABBITMQ_URL', 'amqp://guest:guest@127.0.0.1:5672');

/** RabbitMQ with a durable queue, persistent messages and publisher confirms. */
export const rabbitmqBroker: BenchBroker = {
  name: 'RabbitMQ with confirms',
  server,
  perSecondMin: 10_000,
  open: async () => {
    const connection = await connect(server.href);
    const channel = await connection.createConfirmChannel();
    const name = `bench-${randomUUID()}`;
    await channel.assertExchange(name, 'topic', { durable: true });
    await channel.assertQueue(name, { durable: true });
    await channel.bindQueue(name, name, '#');
    return {
      topic: name,
      broker: rabbitmq({ url: server.href, exchange: name }),
      publishBare: async (messages) => {
        for (const batch of batches(messages)) {
          for (const { id, eventType, attributes, body } of batch) {
            const named = Object.entries(attributes).map(([key, value]) => [`cloudEvents:${key}`, value]);
            channel.publish(name, `Wallet.${eventType}`, Buffer.from(body), {
              headers: Object.fromEntries(named) as Readonly<Record<string, string>>,
              contentType: 'application/json',
              messageId: id,
              persistent: true,
              mandatory: true,
            });
          }
          await channel.waitForConfirms();
        }
      },
      count: async () => (await channel.checkQueue(name)).messageCount,
      remove: async () => {
        await channel.deleteQueue(name);
        await channel.deleteExchange(name);
        await connection.close();
      },
    };
  },
};
