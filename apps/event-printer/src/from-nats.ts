import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';

import { type Reading, cloudEventOf } from './cloud-event.ts';

/** Reads a stream of NATS JetStream from its first message on; creates the stream if it does not exist. */
export async function readFromNats({ url, place: stream, namespace, onEvent }: Reading): Promise<void> {
  const connection = await connect({ servers: url });
  const manager = await jetstreamManager(connection);
  await manager.streams.info(stream).catch(async () => {
    await manager.streams.add({ name: stream, subjects: [`${namespace}.>`] });
  });
  const consumer = await jetstream(connection).consumers.get(stream);
  for await (const message of await consumer.consume()) {
    const names = message.headers?.keys().filter((name) => name.startsWith('ce-')) ?? [];
    const attributes = names.map(
      (name) => [name.slice(3), decodeURIComponent(message.headers?.get(name) ?? '')] as const,
    );
    onEvent(cloudEventOf(Object.fromEntries(attributes), message.string()));
  }
}
