import { type ConsumerMessages, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { unescape } from 'node:querystring';

import { type Reading, walletEvents } from './cloud-event.ts';

/**
 * Reads a stream of NATS JetStream from its first message on; creates the stream if it does not exist.
 *
 * @throws Error with the reason when it cannot connect, or its connection has ended
 */
export async function readFromNats(url: string, { onReading, onMessage }: Reading): Promise<never> {
  const { host, username, password } = new URL(url);
  // The client takes users and passwords apart from URLs; a user alone is a token.
  const user = unescape(username);
  const credentials =
    username === '' ? {} : password === '' ? { token: user } : { user, pass: unescape(password) };
  const connection = await connect({ servers: host, reconnect: false, ...credentials });
  const manager = await jetstreamManager(connection);
  await manager.streams.info(walletEvents).catch(async () => {
    await manager.streams.add({ name: walletEvents, subjects: ['com.example.wallet.>'] });
  });
  const consumer = await jetstream(connection).consumers.get(walletEvents);
  const messages = await consumer.consume();
  onReading();
  const error = await Promise.race([connection.closed(), readAll(messages, onMessage)]);
  throw error ?? new Error('NATS has ended the connection');
}

async function readAll(messages: ConsumerMessages, onMessage: Reading['onMessage']): Promise<void> {
  for await (const message of messages) {
    const names = message.headers?.keys().filter((name) => name.startsWith('ce-')) ?? [];
    const attributes = names.map(
      (name) => [name.slice(3), unescape(message.headers?.get(name) ?? '')] as const,
    );
    onMessage(Object.fromEntries(attributes), message.string());
  }
}
