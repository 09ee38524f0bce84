import { type ChannelModel, connect } from 'amqplib';

import { type Reading, walletEvents } from './cloud-event.ts';

const queue = `${walletEvents}.printed`;
const prefix = 'cloudEvents:';

/**
 * Reads a durable queue of RabbitMQ, which it binds to all events of the exchange. A message is acknowledged only after it was
 * handled, so a crash before that leaves it in the queue.
 *
 * @throws Error with the reason when it cannot connect, its connection has ended, or its queue was deleted
 */
export async function readFromRabbitMq(url: string, reading: Reading): Promise<never> {
  const connection = await connect(url);
  const { promise: ended, reject: end } = Promise.withResolvers<never>();
  connection.on('error', end);
  connection.on('close', (error?: Error) => end(error ?? new Error('RabbitMQ has ended the connection')));
  await Promise.race([ended, consume(connection, reading, end)]);
  return ended;
}

async function consume(
  connection: ChannelModel,
  { onReading, onMessage }: Reading,
  end: (error: Error) => void,
): Promise<void> {
  const channel = await connection.createChannel();
  channel.on('error', end);
  await channel.assertExchange(walletEvents, 'topic', { durable: true });
  await channel.assertQueue(queue, { durable: true });
  await channel.bindQueue(queue, walletEvents, '#');
  await channel.consume(queue, (message) => {
    if (message === null) {
      end(new Error(`The queue ${queue} was deleted`));
      return;
    }
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
