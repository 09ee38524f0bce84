import { systemClock } from '@framework/core';
import { Delivery } from '@framework/events';
import { FaultProxy } from '@framework/testing';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';

import { relay } from '../src/index.js';
import { nats } from '../src/nats.js';
import { Counters } from './counter.js';
import { brokerServer } from './servers.js';

const server = await brokerServer('NATS', 'NATS_URL', 'nats://127.0.0.1:4222');

test.skipIf(server === undefined)(
  'events reach a consumer of NATS in order, even after an outage',
  async () => {
    const { hostname: host = '', port } = server ?? {};
    const proxy = await FaultProxy.to({ host, port: Number(port) });
    const servers = [`127.0.0.1:${proxy.port}`];
    const stream = `relay-${randomUUID()}`;
    const { databases, executor, ...counters } = new Counters(systemClock, stream);

    const broker = nats({ servers, stream, createWith: [`${stream}.>`] });
    const publisher = relay({ name: 'events-to-nats', broker, startFrom: 'beginning' });
    const delivery = new Delivery({
      databases,
      executor,
      handlers: [publisher],
      onAttemptFailed: () => undefined,
    });
    delivery.start();
    await delivery.started();

    const id = await counters.open();
    for (let by = 1; by <= 20; by++) {
      if (by === 10) await proxy.refuse();
      if (by === 15) await proxy.accept();
      await counters.increase(id, by);
    }

    const connection = await connect({ servers: `${host}:${port}` });
    const { streams } = await jetstreamManager(connection);
    await expect.poll(async () => (await streams.info(stream)).state.messages).toBe(20);
    const consumer = await jetstream(connection).consumers.get(stream);
    const received: unknown[] = [];
    for await (const message of await consumer.fetch({ max_messages: 20 })) received.push(message.json());
    expect(received).toEqual(Array.from({ length: 20 }, (_, index) => ({ by: index + 1 })));

    await delivery.stop();
    await broker.close();
    await streams.delete(stream);
    await connection.close();
    await databases.close();
    await proxy.close();
  },
);
