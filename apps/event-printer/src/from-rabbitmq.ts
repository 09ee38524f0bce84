import { connect } from 'amqplib';

import { type Reading, walletEvents } from './cloud-event.ts';

const queue = `${walletEvents}.printed`;
const prefix = 'cloudEvents:';

/**
 * Reads a durable queue of RabbitMQ, which it binds to all events of the exchange. A message is acknowledged only after it was
 * handled, so a crash before that leaves it in the queue.
 */
export async function readFromRabbitMq(url: string, { onReading, onMessage }: Reading): Promise<void> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  await channel.assertExchange(walletEvents, 'topic', { durable: true });
  await channel.assertQueue(queue, { durable: true });
  await channel.bindQueue(queue, walletEvents, '#');
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
  onReading();
}
