import { systemClock } from '@framework/core';
import { Delivery } from '@framework/events';
import { createTestDatabase } from '@framework/testing/postgres';
import { type JsMsg, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { randomUUID } from 'node:crypto';
import { type ClientBase, Pool } from 'pg';
import { expect, test } from 'vitest';

import { EventDecoder, Inbox } from '../src/inbox/index.js';
import { relay } from '../src/index.js';
import { nats } from '../src/nats.js';
import { CounterClosedEvent, CounterIncreasedEvent, Counters } from './counter.js';
import { pgTransaction, queryOfPg } from './inbox-databases.js';
import { brokerServer } from './servers.js';

const server = await brokerServer('NATS', 'NATS_URL', 'nats://127.0.0.1:4222');

/** A service of its own: it has the classes of the events, and a database. */
class Statistics {
  readonly #pool: Pool;
  readonly #decoder: EventDecoder<typeof CounterIncreasedEvent | typeof CounterClosedEvent>;
  readonly #inbox: Inbox;

  constructor(pool: Pool, namespace: string) {
    this.#pool = pool;
    this.#decoder = new EventDecoder({
      namespace,
      events: [CounterIncreasedEvent, CounterClosedEvent],
    });
    this.#inbox = new Inbox({ consumer: 'statistics' });
  }

  async start(): Promise<void> {
    await this.#pool.query('create table totals (counter text primary key, total int not null)');
    await this.#inbox.createTable(queryOfPg(this.#pool));
  }

  /** Handles a message, and then acknowledges it: if the process dies in between, the message comes again. */
  async receive(message: JsMsg): Promise<void> {
    const received = this.#decoder.decodeIfKnown({ headers: message.headers ?? [], body: message.data });
    if (received !== undefined) {
      const { id, event } = received;
      await pgTransaction(this.#pool, async (tx) => {
        if (!(await this.#inbox.accept(queryOfPg(tx), id))) return;
        if (event instanceof CounterIncreasedEvent) await this.#add(tx, event);
      });
    }
    message.ack();
  }

  async #add(tx: ClientBase, { modelId, by }: CounterIncreasedEvent): Promise<void> {
    await tx.query(
      'insert into totals values ($1, $2) on conflict (counter) do update set total = totals.total + $2',
      [modelId, by],
    );
  }

  async totals(): Promise<unknown> {
    const { rows } = await this.#pool.query('select counter, total from totals order by counter');
    return rows;
  }

  async forget(): Promise<number> {
    const monthAgo = new Date(Date.now() - 30 * 24 * 60 * 60 * 1_000);
    return this.#inbox.removeOlderThan(queryOfPg(this.#pool), monthAgo);
  }
}

test.skipIf(server === undefined)(
  'a service counts each event once, however often it receives it',
  async () => {
    const { hostname: host = '', port } = server ?? {};
    const servers = [`${host}:${port}`];
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
    const ids = [await counters.open(), await counters.open()];
    for (let by = 1; by <= 10; by++) for (const id of ids) await counters.increase(id, by);

    const connection = await connect({ servers });
    const manager = await jetstreamManager(connection);
    await expect.poll(async () => (await manager.streams.info(stream)).state.messages).toBe(20);
    const database = await createTestDatabase();
    const pool = new Pool({ connectionString: database.url });
    pool.on('error', () => undefined);
    const statistics = new Statistics(pool, stream);
    await statistics.start();
    // Each consumer of the stream gets all messages, so that all but the first are repeats; two of them at the same time.
    const consume = async (): Promise<void> => {
      const { name } = await manager.consumers.add(stream, { ack_policy: 'explicit' });
      const consumer = await jetstream(connection).consumers.get(stream, name);
      for await (const message of await consumer.fetch({ max_messages: 20 }))
        await statistics.receive(message);
    };
    await Promise.all([consume(), consume()]);
    await consume();
    const totals = ids.map(({ value }) => ({ counter: value, total: 55 }));
    expect(await statistics.totals()).toEqual(
      totals.toSorted((one, other) => (one.counter < other.counter ? -1 : 1)),
    );
    expect(await statistics.forget()).toBe(0);

    await delivery.stop();
    await broker.close();
    await manager.streams.delete(stream);
    await connection.close();
    await databases.close();
    await pool.end();
    await database.drop();
  },
);
