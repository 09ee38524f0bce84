import { connect } from 'amqplib';

import type { Reading } from './cloud-event.ts';

const prefix = 'cloudEvents:';

/**
 * Reads a durable queue of RabbitMQ, which it binds to all events of the exchange. A message is acknowledged when it was read, so
 * that the queue has it again after a crash.
 */
export async function readFromRabbitMq({ url, place: exchange, onMessage }: Reading): Promise<void> {
  const queue = `${exchange}.printed`;
  const connection = await connect(url);
  const channel = await connection.createChannel();
  await channel.assertExchange(exchange, 'topic', { durable: true });
  await channel.assertQueue(queue, { durable: true });
  await channel.bindQueue(queue, exchange, '#');
  await channel.consume(queue, (message) => {
    if (message === null) return;
    const { headers = {}, contentType } = message.properties as {
      readonly headers?: Readonly<Record<string, unknown>>;
      readonly contentType?: string;
    };
    const attributes = Object.entries(headers)
      .filter(([name]) => name.startsWith(prefix))
      .map(([name, value]) => [name.slice(prefix.length), String(value)] as const);
    const named = Object.fromEntries(attributes);
    const typed = contentType === undefined ? named : { ...named, datacontenttype: contentType };
    onMessage(typed, message.content.toString());
    channel.ack(message);
  });
}
