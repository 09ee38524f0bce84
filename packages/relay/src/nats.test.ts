import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { ScriptedNats } from '../test/scripted-nats.js';
import { unhandledRejections } from '../test/unhandled.js';
import type { Broker, PublishOutcome } from './index.js';
import { type NatsOptions, nats } from './nats.js';

const forever = new AbortController().signal;

let server: ScriptedNats;
const opened: Broker[] = [];
beforeEach(async () => {
  server = await ScriptedNats.start();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((broker) => broker.close()));
  await server.stop();
});

function open(options: Partial<NatsOptions> = {}): Broker {
  const connection = { maxReconnectAttempts: 0 };
  const broker = nats({ servers: [server.address], stream: 's', connection, ...options });
  opened.push(broker);
  return broker;
}

/** What becomes of one message; `again` if it is to be published once more. */
async function outcomeOf(
  broker: Broker,
  message = messageFor('t', 'a', 1),
): Promise<PublishOutcome | 'again'> {
  const again = { kind: 'held-back' } as const;
  const [outcome = again] = await broker.publish([message], forever).catch(() => [undefined]);
  return outcome === again ? 'again' : outcome;
}

describe('NATS', () => {
  test('gets the type of the event in the subject, and the attributes in the headers', async () => {
    const message = messageFor('com.example.Counter', 'Größe "100 %"', 1, '{"text":"Größe 😀"}');
    expect(await outcomeOf(open(), message)).toEqual({ kind: 'confirmed' });
    const subject = 'com.example.Counter.CounterIncreasedEvent';
    expect(server.published).toEqual([
      {
        subject,
        body: '{"text":"Größe 😀"}',
        headers: {
          'Nats-Msg-Id': `${message.id} ${subject}`,
          'Nats-Expected-Stream': 's',
          'ce-specversion': '1.0',
          'ce-id': message.id,
          'ce-subject': 'Gr%C3%B6%C3%9Fe%20%22100%20%25%22',
          'ce-modelname': 'Counter',
          'ce-modelversion': '1',
        },
      },
    ]);
  });

  test('gets nothing while its user may not subscribe to answers, and everything once it may again', async () => {
    const broker = open();
    server.deniesAnswers = true;
    for (let call = 0; call < 2; call++)
      await expect(broker.publish([messageFor('t', 'a', 1)], forever)).rejects.toThrow(
        'Permissions Violation for Subscription',
      );
    await expect(broker.ping()).rejects.toThrow('Permissions Violation for Subscription');
    expect(server.published).toEqual([]);
    server.deniesAnswers = false;
    expect(await outcomeOf(broker)).toEqual({ kind: 'confirmed' });
  });

  test('gets other ids for de-duplication if long subjects or ids differ only at the end', async () => {
    const long = 'x'.repeat(1_000);
    const message = messageFor(`${long}.a`, 'a', 1);
    const messages = [
      message,
      { ...message, key: 'b', topic: `${long}.b` },
      { ...message, key: 'c', id: `${message.id}${long}c` },
      { ...message, key: 'd', id: `${message.id}${long}d` },
      { ...message, key: 'e', eventType: `${long}e` },
      { ...message, key: 'f', eventType: `${long}f` },
    ];
    await open().publish(messages, forever);
    expect(new Set(server.published.map(({ headers }) => headers['Nats-Msg-Id'])).size).toBe(messages.length);
  });

  test('refuses a message only because it is too large, and gets it later after all other errors', async () => {
    const broker = open();
    const codes = [
      10_003, 10_023, 10_039, 10_047, 10_053, 10_054, 10_055, 10_059, 10_060, 10_061, 10_071, 10_077, 503, 0,
    ];
    const refusing: number[] = [];
    for (const code of codes) {
      server.answers = () => ({ error: { code: 400, err_code: code, description: 'no' } });
      const outcome = await outcomeOf(broker);
      if (outcome === 'again' || outcome.kind !== 'later') refusing.push(code);
    }
    expect(refusing).toEqual([10_054]);
  });

  test('that has no stream for a subject, or none with a leader, gets the message later, and says which subject', async () => {
    server.answers = () => 503;
    expect(await outcomeOf(open())).toMatchObject({
      kind: 'later',
      of: 'target',
      reason: expect.stringContaining('no stream takes the subject t.CounterIncreasedEvent') as string,
    });
  });

  test.each(['', '.', 't.', '.t', 't..u'])(
    'gets no message for the topic %j, whose subject has an empty part',
    async (topic) => {
      expect(await outcomeOf(open(), messageFor(topic, 'a', 1))).toMatchObject({ kind: 'refused' });
      expect(server.published).toEqual([]);
    },
  );

  test.each([
    ['x', 3_495, 1],
    ['x', 3_496, 0],
    ['€', 1_165, 1],
    ['€', 1_166, 0],
  ])('gets subjects of up to 3,500 bytes, not characters: %s, %i times: %i', async (text, times, count) => {
    const subject = '{topic}.{id}yyy';
    const messages = [messageFor('t', text.repeat(times), 1), messageFor('t', 'b', 1)];
    const [outcome, other] = await open({ subject }).publish(messages, forever);
    expect(outcome?.kind).toBe(count === 1 ? 'confirmed' : 'refused');
    expect(other).toEqual({ kind: 'confirmed' });
    expect(server.published).toHaveLength(count + 1);
  });

  test('gets no later message of a model behind a refused one, and all of other models', async () => {
    server.answers = ({ headers }) =>
      headers['ce-subject'] === 'a' ? { error: { err_code: 10_054 } } : { stream: 's', seq: 1 };
    const messages = [
      messageFor('t', 'a', 1),
      messageFor('t', 'b', 1),
      messageFor('t', 'a', 2),
      messageFor('t', 'b', 2),
    ];
    const outcomes = await open().publish(messages, forever);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['refused', 'confirmed', 'held-back', 'confirmed']);
    expect(server.published).toHaveLength(3);
  });

  test('is connected once, by the first of callers that come at the same time, and stays so', async () => {
    const broker = open();
    await Promise.all([broker.ping(), broker.ping(), outcomeOf(broker)]);
    for (let round = 0; round < 20; round++) await outcomeOf(broker, messageFor('t', 'a', round));
    expect(server.connectionCount).toBe(1);
    await broker.close();
    await expect.poll(() => server.sockets.size).toBe(0);
    await expect(broker.ping()).rejects.toThrow('closed');
  });

  test('loses no connection that another caller has opened since, when one is lost', async () => {
    const unhandled = unhandledRejections();
    const broker = open();
    server.answers = () => undefined;
    const lost = outcomeOf(broker);
    await expect.poll(() => server.published.length).toBe(1);
    server.cut();
    expect(await lost).toBe('again');
    server.answers = () => ({ stream: 's', seq: 1 });
    await expect.poll(() => outcomeOf(broker)).toEqual({ kind: 'confirmed' });
    const { connectionCount } = server;
    await Promise.all([broker.ping(), outcomeOf(broker)]);
    expect(server.connectionCount).toBe(connectionCount);
    expect(await unhandled()).toEqual([]);
  });

  test('is left without a connection when it is reached, but has no JetStream', async () => {
    server.refusal = { error: { code: 503, err_code: 10_076, description: 'JetStream not enabled' } };
    const broker = open();
    await expect(broker.ping()).rejects.toBeInstanceOf(Error);
    await expect.poll(() => server.sockets.size).toBe(0);
    server.refusal = undefined;
    expect(await outcomeOf(broker)).toEqual({ kind: 'confirmed' });
  });

  test.each([
    [true, ['t.>'], 0],
    [false, ['t.>'], 1],
    [false, undefined, 0],
  ])(
    'whose stream exists (%s) and may be created with %j creates it %i times',
    async (exists, createWith, count) => {
      server.streamExists = exists;
      await outcomeOf(open(createWith === undefined ? {} : { createWith }));
      expect(server.requests.filter((request) => request === 'STREAM.CREATE.s')).toHaveLength(count);
    },
  );

  test.each([
    ['made anew', '2026-01-02T00:00:00Z'],
    ['edited', '2026-01-01T00:00:00Z'],
  ])(
    'confirms nothing that a stream dropped which was %s with retention: interest, and stores it for a consumer',
    async (_how, created) => {
      const broker = open();
      const message = messageFor('t', 'a', 1);
      // Messages of others are stored before this one.
      let seq = 1_000;
      server.answers = () => {
        server.stream = { config: { name: 's', retention: 'interest' }, created, state: { messages: 0 } };
        return { stream: 's', seq: seq++ };
      };
      for (const reason of ['may have dropped the message', 'none of them gets t.'])
        expect(await outcomeOf(broker, message)).toMatchObject({
          kind: 'later',
          of: 'target',
          reason: expect.stringContaining(reason) as string,
        });
      expect(server.published).toHaveLength(1);
      server.consumed = ['t.>'];
      for (let count = 0; count < 2; count++)
        expect(await outcomeOf(broker, message)).toEqual({ kind: 'confirmed' });
      const [dropped, stored, repeated] = server.published.map(({ headers }) => headers['Nats-Msg-Id']);
      // Otherwise the stream would take it for a repeat of what it has dropped.
      expect(stored).not.toBe(dropped);
      expect(repeated).toBe(stored);
    },
  );

  test('is asked for the settings of its stream once after all messages of a call are acknowledged', async () => {
    const broker = open();
    await broker.publish([messageFor('t', 'a', 1)], forever);
    server.requests.length = 0;
    let publishedBefore = 0;
    const messages = Array.from({ length: 50 }, (_, index) => messageFor('t', `${index % 5}`, index));
    server.answers = () => {
      publishedBefore += server.requests.length === 0 ? 1 : 0;
      return { stream: 's', seq: 1 };
    };
    await broker.publish(messages, forever);
    expect(server.requests).toEqual(['STREAM.INFO.s']);
    expect(publishedBefore).toBe(messages.length);
  });

  test('is named with its address in every error that says it does not answer questions about the stream', async () => {
    const silence = `NATS at ${server.address} does not answer`;
    const broker = open({ timeoutMs: 200 });
    await outcomeOf(broker);
    server.isSilent = true;
    // By now, the first call's message is acknowledged; the second call's message has not been sent.
    for (let call = 0; call < 2; call++)
      await expect(broker.publish([messageFor('t', 'a', 1)], forever)).rejects.toThrow(silence);
    expect(server.published).toHaveLength(2);
    await expect(broker.ping()).rejects.toThrow(silence);
    server.isSilent = false;
    expect(await outcomeOf(broker)).toEqual({ kind: 'confirmed' });
    server.isSilent = true;
    server.answers = () => ({ stream: 's', seq: 1, duplicate: true });
    await expect(broker.publish([messageFor('t', 'a', 1)], forever)).rejects.toThrow(silence);
  });

  test('answers a ping only if its stream exists', async () => {
    const broker = open();
    await broker.ping();
    server.streamExists = false;
    await expect(broker.ping()).rejects.toBeInstanceOf(Error);
  });

  test('answers pings after it has refused a message whose subject cannot exist', async () => {
    const broker = open({ subject: 't.{id}' });
    server.answers = ({ headers }) =>
      headers['Nats-Expected-Stream'] === '.' ? { error: { err_code: 10_060 } } : { stream: 's', seq: 1 };
    expect(await outcomeOf(broker)).toEqual({ kind: 'confirmed' });
    const impossible = ['a b', 'c d'].map((id) => messageFor('t', id, 1));
    expect(await broker.publish(impossible, forever)).toMatchObject([
      { kind: 'refused' },
      { kind: 'refused' },
    ]);
    await broker.ping();
    expect(server.published.map(({ subject }) => subject)).toEqual(['t.a', 't.a']);
  });

  test('that cannot be reached is not waited for, whatever the options of the client say', async () => {
    const connection = { waitOnFirstConnect: true, maxReconnectAttempts: -1, reconnectTimeWait: 10 };
    const broker = open({ servers: ['127.0.0.1:1'], connection });
    await expect(broker.ping()).rejects.toThrow('There is no connection to NATS at 127.0.0.1:1');
  });

  test.each(['nats://ann:s3cret@127.0.0.1', 'ann@127.0.0.1'])(
    'is not opened at %s, which has a user',
    (address) => {
      expect(() => nats({ servers: ['127.0.0.1', address], stream: 's' })).toThrow(/^[^@]*$/);
    },
  );
});
