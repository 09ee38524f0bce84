import { type Channel, type ChannelModel, connect } from 'amqplib';
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

import type { Broker } from '../../src/index.js';
import { type RabbitMqOptions, rabbitmq } from '../../src/rabbitmq.js';
import { messageFor } from '../broker-suite.js';
import { type RabbitMqServer, rabbitMqProgram, rabbitMqServer } from '../faults/own-rabbitmq.js';
import { unhandledRejections } from '../unhandled.js';
import { answerTo } from './answer.js';

const forever = new AbortController().signal;
const patience = { timeout: 30_000, interval: 50 };
const command = await rabbitMqProgram();

describe.skipIf(command === undefined)('RabbitMQ', () => {
  let server: RabbitMqServer;
  let connection: ChannelModel;
  let channel: Channel;
  const opened: Broker[] = [];
  beforeAll(async () => {
    server = await rabbitMqServer(command ?? '');
    await server.names.start();
    await server.server.start();
    await connectOwn();
  });
  afterEach(() => Promise.all(opened.splice(0).map((broker) => broker.close())));
  afterAll(async () => {
    await connection.close();
    for (const each of [server.server, server.names]) await each.end();
  });

  /** Opens the connection of the test. */
  async function connectOwn(): Promise<void> {
    connection = await connect(addressOf());
    connection.on('error', () => undefined);
    channel = await connection.createChannel();
    channel.on('error', () => undefined);
  }

  function addressOf(user = 'guest:guest'): string {
    return `amqp://${user}@127.0.0.1:${server.server.port}`;
  }

  function open(
    exchange: string,
    { user = 'guest:guest', ...options }: Partial<RabbitMqOptions> & { user?: string } = {},
  ) {
    const broker = rabbitmq({ url: addressOf(user), exchange, timeoutMs: 5_000, ...options });
    opened.push(broker);
    return broker;
  }

  /** An exchange of a test's own. */
  async function newExchange(): Promise<string> {
    const name = `e${randomUUID()}`;
    await channel.assertExchange(name, 'topic', { durable: true });
    return name;
  }

  /** An exchange and a queue that takes all of its messages. */
  async function newQueue(settings: Readonly<Record<string, unknown>> = {}): Promise<string> {
    const name = await newExchange();
    await channel.assertQueue(name, { durable: true, arguments: settings });
    await channel.bindQueue(name, name, '#');
    return name;
  }

  async function countIn(queue: string): Promise<number> {
    return (await channel.checkQueue(queue)).messageCount;
  }

  /** How many connections the server has, without that of the test. */
  async function connectionCount(): Promise<number> {
    const listed = await server.ctl('-q', 'list_connections', '--no-table-headers', 'pid');
    return listed.split('\n').filter((line) => line !== '').length - 1;
  }

  /** Sets the largest message that the server takes; newer ones have it elsewhere than older ones. */
  function limit(bytes: number): Promise<string> {
    return server.ctl(
      'eval',
      `application:set_env(rabbit, max_message_size, ${bytes}), persistent_term:put(max_message_size, ${bytes}).`,
    );
  }

  test('that has no queue for a message takes it once one is bound', async () => {
    const name = await newExchange();
    const broker = open(name);
    const message = messageFor('t', 'a', 1);
    expect(await answerTo(broker, message)).toBe(
      'later: NO_ROUTE: no queue is bound for Counter.CounterIncreasedEvent',
    );
    await channel.assertQueue(name, { durable: true });
    await channel.bindQueue(name, name, 'Counter.*');
    expect(await answerTo(broker, message)).toBe('confirmed');
  });

  test('whose queue is full takes the message once there is room', async () => {
    const name = await newQueue({ 'x-max-length': 1, 'x-overflow': 'reject-publish' });
    const broker = open(name);
    await answerTo(broker, messageFor('t', 'a', 1));
    const message = messageFor('t', 'a', 2);
    expect(await answerTo(broker, message)).toMatch(/^later: .*basic\.nack/);
    await channel.purgeQueue(name);
    expect(await answerTo(broker, message)).toBe('confirmed');
  });

  test('says in its own words that a user may not publish, to messages and to a ping', async () => {
    const name = await newQueue();
    await server.ctl('add_user', name, 'pw');
    await server.ctl('set_permissions', name, '^$', '^$', '.*');
    const broker = open(name, { user: `${name}:pw` });
    await expect(broker.ping()).rejects.toThrow(/ACCESS_REFUSED.*access to exchange/);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^again: .*ACCESS_REFUSED/);
    await server.ctl('set_permissions', name, '^$', '.*', '.*');
    // A channel remembers for a while what a user may do.
    await expect.poll(() => answerTo(broker, messageFor('t', 'a', 1)), patience).toBe('confirmed');
    await broker.ping();
    await server.ctl('set_topic_permissions', name, name, '^Wallet', '.*');
    await expect(broker.ping()).rejects.toThrow(/ACCESS_REFUSED.*Counter\.CounterIncreasedEvent/);
    const fresh = open(name, { user: `${name}:pw` });
    await fresh.ping();
  });

  test('says that the exchange was removed, and takes the message once it is there again', async () => {
    const name = await newQueue();
    const broker = open(name);
    await answerTo(broker, messageFor('t', 'a', 1));
    await channel.deleteExchange(name);
    expect(await answerTo(broker, messageFor('t', 'a', 2))).toMatch(/^again: .*NOT_FOUND.*no exchange/);
    await expect(broker.ping()).rejects.toThrow(/NOT_FOUND/);
    await channel.assertExchange(name, 'topic', { durable: true });
    await channel.bindQueue(name, name, '#');
    expect(await answerTo(broker, messageFor('t', 'a', 2))).toBe('confirmed');
  });

  test('says why an exchange of another type is not declared, and that a password is wrong', async () => {
    const name = `e${randomUUID()}`;
    await channel.assertExchange(name, 'fanout', { durable: true });
    expect(await answerTo(open(name, { declare: true }), messageFor('t', 'a', 1))).toMatch(
      /^again: .*PRECONDITION_FAILED.*type/,
    );
    expect(await answerTo(open(name, { user: 'guest:wrong' }), messageFor('t', 'a', 1))).toMatch(
      /^again: .*ACCESS_REFUSED/,
    );
  });

  test('stores nothing for a ping, and publishes on the same connection afterwards', async () => {
    const name = await newQueue();
    const broker = open(name);
    for (let round = 0; round < 3; round++) await broker.ping();
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toBe('confirmed');
    await broker.ping();
    expect(await countIn(name)).toBe(1);
    expect(await connectionCount()).toBe(1);
  });

  test('with a limit below that of the relay refuses a larger message alone, and takes the others', async () => {
    const name = await newQueue();
    const broker = open(name);
    await limit(100_000);
    const large = messageFor('t', 'large', 1, JSON.stringify('x'.repeat(150_000)));
    const others = ['a', 'b', 'c'].map((model) => messageFor('t', model, 1));
    // Only the closed channel tells the limit.
    await broker.publish([large, ...others], forever).catch(() => undefined);
    const outcomes = await broker.publish([large, ...others], forever);
    await limit(134_217_728);
    await server.ctl('close_all_connections', 'the limit was raised');
    await connectOwn();
    await expect.poll(() => answerTo(broker, large), patience).toBe('confirmed');
    expect(outcomes).toEqual([
      { kind: 'refused', reason: expect.stringContaining('(100000)') as string },
      ...others.map(() => ({ kind: 'confirmed' })),
    ]);
  });

  test('without memory says so, gets no further connections, and takes the message afterwards', async () => {
    const name = await newQueue();
    const broker = open(name, { timeoutMs: 1_000 });
    const message = messageFor('t', 'a', 1);
    const unhandled = unhandledRejections();
    await server.ctl('set_vm_memory_high_watermark', '0.0000001');
    // Both learn of it at the same time.
    const both = [answerTo(broker, message), broker.ping().catch((error: Error) => error.message)];
    expect(await Promise.all(both)).toEqual([
      expect.stringContaining('low on memory') as string,
      expect.stringContaining('low on memory') as string,
    ]);
    expect(await unhandled()).toEqual([]);
    const answers = new Set<string>();
    for (let round = 0; round < 10; round++) answers.add(await answerTo(broker, message));
    expect([...answers]).toEqual([
      'again: Error: RabbitMQ takes no messages now (connection.blocked): low on memory',
    ]);
    await expect(broker.ping()).rejects.toThrow('low on memory');
    expect(await connectionCount()).toBe(1);
    await server.ctl('set_vm_memory_high_watermark', '0.6');
    await expect.poll(() => answerTo(broker, message), patience).toBe('confirmed');
    await broker.ping();
    expect(await connectionCount()).toBe(1);
  });

  test('that cannot be reached is said to be so', async () => {
    const broker = rabbitmq({ url: 'amqp://127.0.0.1:1', exchange: 'e' });
    opened.push(broker);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^again: .*ECONNREFUSED/);
  });
});
