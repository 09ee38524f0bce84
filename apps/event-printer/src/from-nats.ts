import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';

import { type Reading, cloudEventOf, walletEvents } from './cloud-event.ts';

/** Reads a stream of NATS JetStream from its first message on; creates the stream if it does not exist. */
export async function readFromNats(servers: string, { onReading, onEvent }: Reading): Promise<void> {
  const connection = await connect({ servers });
  const manager = await jetstreamManager(connection);
  await manager.streams.info(walletEvents).catch(async () => {
    await manager.streams.add({ name: walletEvents, subjects: ['com.example.wallet.>'] });
  });
  const consumer = await jetstream(connection).consumers.get(walletEvents);
  const messages = await consumer.consume();
  onReading();
  for await (const message of messages) {
    const names = message.headers?.keys().filter((name) => name.startsWith('ce-')) ?? [];
    const attributes = names.map(
      (name) => [name.slice(3), decodeURIComponent(message.headers?.get(name) ?? '')] as const,
    );
    onEvent(cloudEventOf(Object.fromEntries(attributes), message.string()));
  }
}
