import { type JetStreamManager, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { type NatsConnection, connect } from '@nats-io/transport-node';
import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

import type { Broker } from '../../src/index.js';
import { type NatsOptions, nats } from '../../src/nats.js';
import { messageFor } from '../broker-suite.js';
import { OwnServer, programOf } from '../faults/own-server.js';
import { answerTo } from './answer.js';
import { warningsOf } from './warnings.js';

const forever = new AbortController().signal;
const command = await programOf('NATS', 'nats-server');
const admin = { user: 'admin', pass: 'a' };
const maxPayload = 1_048_576;
const configuration = `authorization {
  users: [
    { user: admin, password: a }
    { user: relay, password: r, permissions: { publish: ["$JS.API.>", "allowed.>"], subscribe: "_INBOX.>" } }
    { user: blind, password: b, permissions: { publish: ["seen.>"], subscribe: "_INBOX.>" } }
    { user: half, password: h, permissions: { publish: ["$JS.API.STREAM.INFO.*", "seen.>"], subscribe: "_INBOX.>" } }
    { user: private, password: p, permissions: { publish: [">"], subscribe: "_INBOX_relay.>" } }
    { user: mute, password: m, permissions: { publish: [">"], subscribe: "none" } }
  ]
}`;

describe.skipIf(command === undefined)('NATS', () => {
  let server: OwnServer;
  let connection: NatsConnection;
  let manager: JetStreamManager;
  const opened: Broker[] = [];
  beforeAll(async () => {
    server = await OwnServer.create((port, folder) => ({
      command: command ?? '',
      args: ['-a', '127.0.0.1', '-p', `${port}`, '-js', '-sd', folder, '-c', join(folder, 'nats.conf')],
    }));
    await writeFile(join(server.folder, 'nats.conf'), configuration);
    await server.start();
    connection = await connect({ servers: `127.0.0.1:${server.port}`, ...admin });
    manager = await jetstreamManager(connection);
  });
  afterEach(() => Promise.all(opened.splice(0).map((broker) => broker.close())));
  afterAll(async () => {
    await connection.close();
    await server.end();
  });

  /** A stream of a test's own, which takes the subjects that begin with its name. */
  async function newStream(settings: Parameters<JetStreamManager['streams']['add']>[0] | object = {}) {
    const name = `s${randomUUID()}`;
    await manager.streams.add({ name, subjects: [`${name}.>`], ...settings });
    return name;
  }

  function open(stream: string, options: Partial<NatsOptions> = {}): Broker {
    const servers = [`127.0.0.1:${server.port}`];
    const broker = nats({ servers, stream, connection: admin, timeoutMs: 2_000, ...options });
    opened.push(broker);
    return broker;
  }

  async function countIn(stream: string): Promise<number> {
    return (await manager.streams.info(stream)).state.messages;
  }

  test('that has no stream for a subject takes the message as soon as there is one', async () => {
    const name = `s${randomUUID()}`;
    const broker = open(name);
    expect(await answerTo(broker, messageFor(name, 'a', 1))).toMatch(/^later: no stream takes the subject/);
    await expect(broker.ping()).rejects.toThrow('stream not found');
    await manager.streams.add({ name, subjects: [`${name}.>`] });
    expect(await answerTo(broker, messageFor(name, 'a', 1))).toBe('confirmed');
    await broker.ping();
  });

  test('whose other stream takes the subject stores nothing, and the message waits', async () => {
    const [expected, taking] = [await newStream(), await newStream()];
    const broker = open(expected);
    expect(await answerTo(broker, messageFor(taking, 'a', 1))).toBe('later: expected stream does not match');
    expect(await countIn(taking)).toBe(0);
  });

  test('whose stream is full takes the message once there is room', async () => {
    const stream = await newStream({ max_msgs: 1, discard: 'new' });
    const broker = open(stream);
    await answerTo(broker, messageFor(stream, 'a', 1));
    const message = messageFor(stream, 'a', 2);
    expect(await answerTo(broker, message)).toBe('later: maximum messages exceeded');
    await manager.streams.purge(stream);
    expect(await answerTo(broker, message)).toBe('confirmed');
  });

  test('refuses what is larger than the stream or the server allows', async () => {
    const stream = await newStream({ max_msg_size: 1_000 });
    const message = messageFor(stream, 'a', 1, JSON.stringify('x'.repeat(1_000)));
    expect(await answerTo(open(stream), message)).toBe('refused: message size exceeds maximum allowed');
    const large = messageFor(stream, 'a', 1, JSON.stringify('x'.repeat(maxPayload)));
    expect(await answerTo(open(stream), large)).toMatch(/^refused: .*max_payload/);
  });

  test('refuses a subject with a space or a wildcard, and stores nothing', async () => {
    const stream = await newStream();
    for (const type of ['Wallet Created', 'a\tb', 'a\nb', '*', '>'])
      expect(await answerTo(open(stream), { ...messageFor(stream, 'a', 1), eventType: type })).toMatch(
        /^refused: /,
      );
    expect(await countIn(stream)).toBe(0);
  });

  test('takes a subject of 3,500 bytes, and refuses a longer one without losing the connection', async () => {
    const stream = await newStream({ subjects: ['long.>'] });
    const broker = open(stream, { subject: 'long.{id}' });
    const idMax = 'x'.repeat(3_500 - 'long.'.length);
    expect(await answerTo(broker, messageFor('t', idMax, 1))).toBe('confirmed');
    for (const id of [`${idMax}x`, 'x'.repeat(4_090), 'x'.repeat(70_000)])
      expect(await answerTo(broker, messageFor('t', id, 1))).toMatch(/^refused: .* bytes/);
    expect(await countIn(stream)).toBe(1);
    await manager.streams.delete(stream);
  });

  test('says at once that the user may not publish to a subject, to messages and to a ping', async () => {
    const stream = await newStream({ subjects: ['allowed.>', 'forbidden.>'] });
    const broker = open(stream, { connection: { user: 'relay', pass: 'r' }, timeoutMs: 60_000 });
    await broker.ping();
    const outcomes = await broker.publish(
      [messageFor('forbidden', 'a', 1), messageFor('allowed', 'b', 1)],
      forever,
    );
    expect(outcomes).toMatchObject([
      { kind: 'later', reason: expect.stringContaining('Permissions Violation for Publish') as string },
      { kind: 'confirmed' },
    ]);
    await broker.ping();
    expect(await answerTo(broker, messageFor('forbidden', 'a', 1))).toMatch(
      /^later: .*"forbidden\.CounterIncreasedEvent"/,
    );
    await expect(broker.ping()).rejects.toThrow('Permissions Violation for Publish');
    expect(await countIn(stream)).toBe(1);
    await manager.streams.delete(stream);
  });

  test('says that the user may not subscribe to answers', async () => {
    const broker = open(await newStream(), { connection: { user: 'mute', pass: 'm' }, timeoutMs: 60_000 });
    await expect(broker.ping()).rejects.toThrow(/permissions violation for subscription/i);
  });

  test('takes the messages of a user who may only publish, and not ask about the stream', async () => {
    const stream = await newStream({ subjects: ['seen.>'] });
    const broker = open(stream, { connection: { user: 'blind', pass: 'b' } });
    const message = messageFor('seen', 'a', 1);
    for (const each of [message, message, messageFor('seen', 'a', 2)])
      expect(await answerTo(broker, each)).toBe('confirmed');
    await broker.ping();
    expect(await countIn(stream)).toBe(2);
    await manager.streams.delete(stream);
  });

  test('takes the messages of a user who may not ask for the consumers of the stream', async () => {
    const stream = await newStream({ subjects: ['seen.>'], retention: 'interest' });
    await manager.consumers.add(stream, { durable_name: 'all', filter_subject: 'seen.>' });
    const broker = open(stream, { connection: { user: 'half', pass: 'h' } });
    expect(await answerTo(broker, messageFor('seen', 'a', 1))).toBe('confirmed');
    await manager.streams.delete(stream);
  });

  test('has answers arrive where the options of the client say', async () => {
    const stream = await newStream();
    const broker = open(stream, {
      connection: { user: 'private', pass: 'p', inboxPrefix: '_INBOX_relay' },
    });
    expect(await answerTo(broker, messageFor(stream, 'a', 1))).toBe('confirmed');
  });

  test.each([0, 10])(
    'whose stream is made anew with other settings has every message that is confirmed, behind %i of others',
    async (othersCount) => {
      const stream = await newStream();
      const broker = open(stream);
      for (const id of ['a', 'b', 'c']) await answerTo(broker, messageFor(stream, id, 1));
      await manager.streams.delete(stream);
      await manager.streams.add({ name: stream, subjects: [`${stream}.>`], retention: 'interest' });
      await manager.consumers.add(stream, { durable_name: 'others', filter_subject: `${stream}.others` });
      for (let count = 0; count < othersCount; count++)
        await jetstream(connection).publish(`${stream}.others`);
      const message = messageFor(stream, 'd', 1);
      expect(await answerTo(broker, message)).toMatch(/^later: .*may have dropped the message/);
      expect(await answerTo(broker, message)).toMatch(/^later: .*none of them gets/);
      const filter = `${stream}.${message.eventType}`;
      await manager.consumers.add(stream, { durable_name: 'all', filter_subject: filter });
      for (const each of [message, messageFor(stream, 'e', 1), message])
        expect(await answerTo(broker, each)).toBe('confirmed');
      expect(await countIn(stream)).toBe(othersCount + 2);
    },
  );

  test('has the stream made anew on the same connection, if the relay may create it', async () => {
    const stream = await newStream();
    const broker = open(stream, { createWith: [`${stream}.>`] });
    await answerTo(broker, messageFor(stream, 'a', 1));
    await manager.streams.delete(stream);
    const message = messageFor(stream, 'b', 1);
    await expect.poll(() => answerTo(broker, message), { timeout: 10_000 }).toBe('confirmed');
    expect(await countIn(stream)).toBe(1);
  });

  test('stores nothing for a ping', async () => {
    const stream = await newStream();
    const broker = open(stream);
    await answerTo(broker, messageFor(stream, 'a', 1));
    await broker.ping();
    await broker.ping();
    expect(await countIn(stream)).toBe(1);
  });

  test('with a stream that confirms nothing (no_ack) is not published to, and the reason is said', async () => {
    const stream = await newStream({ no_ack: true });
    const broker = open(stream, { timeoutMs: 60_000 });
    expect(await answerTo(broker, messageFor(stream, 'a', 1))).toMatch(/^again: .*has no_ack/);
    await expect(broker.ping()).rejects.toThrow('has no_ack');
    expect(await countIn(stream)).toBe(0);
    await manager.streams.update(stream, { no_ack: false });
    expect(await answerTo(broker, messageFor(stream, 'a', 1))).toBe('confirmed');
  });

  test('with a stream that drops what no consumer gets (retention: interest) has the message once one does', async () => {
    const stream = await newStream({ retention: 'interest' });
    const broker = open(stream);
    const message = messageFor(`${stream}.Counter`, 'a', 1);
    expect(await answerTo(broker, message)).toMatch(/^later: .*none of them gets/);
    await manager.consumers.add(stream, { durable_name: 'other', filter_subject: `${stream}.Wallet.*` });
    expect(await answerTo(broker, message)).toMatch(/^later: .*none of them gets/);
    await manager.consumers.add(stream, { durable_name: 'all', filter_subject: `${stream}.*.Counter>` });
    expect(await answerTo(broker, message)).toMatch(/^later: .*none of them gets/);
    await manager.consumers.add(stream, { durable_name: 'some', filter_subject: `${stream}.Counter.*` });
    expect(await answerTo(broker, message)).toBe('confirmed');
    expect(await countIn(stream)).toBe(1);
  });

  test('does not confirm a repeat of a message that somebody has removed, until it stores it again', async () => {
    const stream = await newStream({ duplicate_window: 1_000_000_000 });
    const broker = open(stream);
    const message = messageFor(stream, 'a', 1);
    expect(await answerTo(broker, message)).toBe('confirmed');
    expect(await answerTo(broker, message)).toBe('confirmed');
    await manager.streams.purge(stream);
    expect(await answerTo(broker, message)).toMatch(/^later: somebody has removed the message/);
    await expect.poll(() => answerTo(broker, message), { timeout: 10_000 }).toBe('confirmed');
    expect(await countIn(stream)).toBe(1);
    await answerTo(broker, messageFor(stream, 'b', 1));
    const { state } = await manager.streams.info(stream);
    await answerTo(broker, messageFor(stream, 'c', 1));
    const last = messageFor(stream, 'd', 1);
    await answerTo(broker, last);
    await manager.streams.deleteMessage(stream, state.last_seq + 2);
    expect(await answerTo(broker, last)).toMatch(/^later: somebody has removed the message/);
  });

  test.each([
    ['newer messages have taken its place', { max_msgs: 2 }],
    ['its subject keeps only the newest one', { max_msgs_per_subject: 1 }],
  ])('confirms a repeat of a message that the stream has had: %s', async (_reason, settings) => {
    const stream = await newStream(settings);
    const broker = open(stream);
    const message = messageFor(stream, 'a', 1);
    for (const each of [message, messageFor(stream, 'b', 1), messageFor(stream, 'c', 1)])
      expect(await answerTo(broker, each)).toBe('confirmed');
    expect(await answerTo(broker, message)).toBe('confirmed');
  });

  test('is said to keep messages in memory only, once', async () => {
    const warnings = warningsOf();
    const stream = await newStream({ storage: 'memory' });
    const broker = open(stream);
    for (const id of ['a', 'b']) await answerTo(broker, messageFor(stream, id, 1));
    expect(await warnings()).toEqual([expect.stringContaining(`The stream ${stream} of NATS keeps`)]);
  });
});
