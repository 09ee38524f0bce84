import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { messageFor } from '../test/broker-suite.js';
import { ScriptedRabbitMq } from '../test/scripted-rabbitmq.js';
import { unhandledRejections } from '../test/unhandled.js';
import type { Broker, BrokerMessage } from './index.js';
import { type RabbitMqOptions, rabbitmq } from './rabbitmq.js';

const forever = new AbortController().signal;

let server: ScriptedRabbitMq;
const opened: Broker[] = [];
beforeEach(async () => {
  server = await ScriptedRabbitMq.start();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((broker) => broker.close()));
  await server.stop();
});

function open(options: Partial<RabbitMqOptions> = {}): Broker {
  const broker = rabbitmq({ url: server.url, exchange: 'e', ...options });
  opened.push(broker);
  return broker;
}

async function kindsOf(broker: Broker, messages: readonly BrokerMessage[]): Promise<readonly string[]> {
  return (await broker.publish(messages, forever)).map(({ kind }) => kind);
}

/** What becomes of one message; `again` if it is to be published once more. */
async function outcomeOf(broker: Broker, message: BrokerMessage = messageFor('t', 'a', 1)): Promise<string> {
  return kindsOf(broker, [message]).then(
    ([kind = 'nothing']) => kind,
    () => 'again',
  );
}

describe('RabbitMQ', () => {
  test('gets persistent and mandatory messages, with the attributes as headers and the type in the routing key', async () => {
    const plain = messageFor('t', 'Größe "100 %" 😀', 1, '{"text":"Größe 😀"}');
    const message = { ...plain, attributes: { ...plain.attributes, datacontenttype: 'text/json' } };
    expect(await outcomeOf(open(), message)).toBe('confirmed');
    expect(server.published).toMatchObject([
      {
        exchange: 'e',
        routingKey: 'Counter.CounterIncreasedEvent',
        mandatory: true,
        body: '{"text":"Größe 😀"}',
        properties: {
          deliveryMode: 2,
          messageId: message.id,
          contentType: 'text/json',
          headers: Object.fromEntries(
            Object.entries(plain.attributes).map(([name, value]) => [`cloudEvents:${name}`, value]),
          ),
        },
      },
    ]);
    expect(server.published[0]?.properties['headers']).not.toHaveProperty('cloudEvents:datacontenttype');
  });

  test('gets a message later that no queue takes, and says so of that message alone', async () => {
    server.verdict = ({ properties }) =>
      (properties['headers'] as Record<string, string>)['cloudEvents:subject'] === 'a' ? 'return' : 'ack';
    const broker = open();
    const messages = [messageFor('t', 'a', 1), messageFor('t', 'a', 2), messageFor('t', 'b', 1)];
    const outcomes = await broker.publish(messages, forever);
    expect(outcomes).toMatchObject([
      { kind: 'later', reason: expect.stringContaining('NO_ROUTE') as string },
      { kind: 'held-back' },
      { kind: 'confirmed' },
    ]);
    // A queue takes it from now on: what was returned once is forgotten.
    server.verdict = () => 'ack';
    expect(await kindsOf(broker, messages)).toEqual(['confirmed', 'confirmed', 'confirmed']);
  });

  test('gets a message later after it has not taken it, and says so', async () => {
    const broker = open();
    server.verdict = () => 'nack';
    expect(await broker.publish([messageFor('t', 'a', 1)], forever)).toMatchObject([
      { kind: 'later', of: 'target', reason: expect.stringContaining('basic.nack') as string },
    ]);
    server.verdict = () => 'ack';
    expect(await outcomeOf(broker)).toBe('confirmed');
    expect(server.connectionCount).toBe(1);
  });

  test.each([
    ['a', 99, true],
    ['a', 100, true],
    ['a', 101, false],
    ['ü', 50, true],
    ['ü', 51, false],
    ['😀', 25, true],
    ['😀', 26, false],
  ])(
    'gets bodies of up to a hundred bytes, not characters, if that is the limit: %s, %i times: %s',
    async (character, count, fits) => {
      const message = messageFor('t', 'a', 1, character.repeat(count));
      expect(await outcomeOf(open({ messageBytesMax: 100 }), message)).toBe(fits ? 'confirmed' : 'refused');
      expect(server.published).toHaveLength(fits ? 1 : 0);
    },
  );

  test.each([
    ['a', 247, 'confirmed'],
    ['a', 248, 'refused'],
    ['ü', 123, 'confirmed'],
    ['ü', 124, 'refused'],
  ])(
    'gets routing keys of up to 255 bytes, not characters: %s, %i times: %s',
    async (character, count, outcome) => {
      const broker = open();
      // The name of the model and a dot are in front of it.
      const message = { ...messageFor('t', 'a', 1), eventType: character.repeat(count) };
      expect(await outcomeOf(broker, message)).toBe(outcome);
      expect(await outcomeOf(broker)).toBe('confirmed');
      expect(server.connectionCount).toBe(1);
    },
  );

  test('refuses a message whose attributes are longer than it reads at once, and gets the others', async () => {
    const broker = open();
    const messages = [messageFor('t', 'x'.repeat(140_000), 1), messageFor('t', 'a', 1)];
    expect(await kindsOf(broker, messages)).toEqual(['refused', 'confirmed']);
    expect(server.connectionCount).toBe(1);
  });

  test('gets all of long names that differ only at the end', async () => {
    const long = 'x'.repeat(200);
    const messages = ['a', 'b'].map((end) => ({ ...messageFor('t', long + end, 1), eventType: long + end }));
    await open().publish(messages, forever);
    expect(new Set(server.published.map(({ routingKey }) => routingKey)).size).toBe(2);
  });

  test('leaves nothing in the broker of messages that it returns or does not confirm', async () => {
    const broker = open();
    const left = await leftBehind(async () => {
      for (const [verdict, outcome] of [
        ['return', 'later'],
        ['nack', 'later'],
      ] as const) {
        server.verdict = () => verdict;
        expect(await outcomeOf(broker)).toBe(outcome);
      }
    });
    expect(left).toEqual([]);
  });

  test('gets messages on another connection after it has closed the channel', async () => {
    const unhandled = unhandledRejections();
    const broker = open();
    server.verdict = () => 'close-channel';
    expect(await outcomeOf(broker)).toBe('again');
    server.verdict = () => 'ack';
    expect(await outcomeOf(broker)).toBe('confirmed');
    expect(server.connectionCount).toBe(2);
    expect(await unhandled()).toEqual([]);
  });

  test('gets messages again that it has not confirmed when the connection is lost, on one other connection', async () => {
    const unhandled = unhandledRejections();
    const broker = open();
    for (let round = 1; round <= 3; round++) {
      server.verdict = () => 'nothing';
      const lost = ['a', 'b'].map((model) => outcomeOf(broker, messageFor('t', model, round)));
      await expect.poll(() => server.published.length).toBe(4 * round - 2);
      server.cut();
      expect(await Promise.all(lost)).toEqual(['again', 'again']);
      server.verdict = () => 'ack';
      const again = ['a', 'b'].map((model) => outcomeOf(broker, messageFor('t', model, round)));
      expect(await Promise.all(again)).toEqual(['confirmed', 'confirmed']);
    }
    expect(server.connectionCount).toBe(4);
    expect(server.sockets.size).toBe(1);
    expect(await unhandled()).toEqual([]);
  });

  test('that is silent gets another connection after the timeout, and the first one is closed', async () => {
    const unhandled = unhandledRejections();
    const broker = open({ timeoutMs: 1_000 });
    await broker.ping();
    server.verdict = () => 'nothing';
    await expect(broker.publish([messageFor('t', 'a', 1)], forever)).rejects.toThrow('1000 ms');
    server.verdict = () => 'ack';
    expect(await outcomeOf(broker)).toBe('confirmed');
    await expect.poll(() => server.sockets.size).toBe(1);
    expect(server.connectionCount).toBe(2);
    expect(await unhandled()).toEqual([]);
  });

  test('that is silent to a new connection is left after the timeout', async () => {
    const unhandled = unhandledRejections();
    server.isSilent = true;
    const broker = open({ timeoutMs: 1_000 });
    await expect(broker.ping()).rejects.toThrow('1000 ms');
    await expect.poll(() => server.sockets.size).toBe(0);
    server.isSilent = false;
    await broker.ping();
    expect(await unhandled()).toEqual([]);
  });

  test('answers pings after it has refused a message because its routing key is too long', async () => {
    const broker = open();
    await outcomeOf(broker);
    expect(await outcomeOf(broker, { ...messageFor('t', 'a', 1), eventType: 'x'.repeat(300) })).toBe(
      'refused',
    );
    await broker.ping();
    expect(server.connectionCount).toBe(1);
  });

  test('that takes nothing more when a ping begins is left without the channel of the ping', async () => {
    const unhandled = unhandledRejections();
    const broker = open();
    await broker.ping();
    server.blocksBy = 'low on memory';
    await expect(broker.ping()).rejects.toThrow('low on memory');
    const channels = () => server.called.filter(({ method }) => method.startsWith('ChannelClose'));
    await expect.poll(channels).toMatchObject([{ method: 'ChannelCloseOk' }, { method: 'ChannelClose' }]);
    expect(await unhandled()).toEqual([]);
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

  test.each([
    [false, { passive: true }],
    [true, { passive: false, durable: true, type: 'topic' }],
  ])(
    'has its exchange declared if the options say so (%s), and checked otherwise',
    async (declare, fields) => {
      await outcomeOf(open({ declare }));
      const declared = server.called.filter(({ method }) => method === 'ExchangeDeclare');
      expect(declared).toMatchObject([{ fields: { exchange: 'e', ...fields } }]);
    },
  );

  test('that lacks the exchange is left without a connection, and reached again when it has it', async () => {
    const unhandled = unhandledRejections();
    server.hasExchange = false;
    const broker = open();
    expect(await outcomeOf(broker)).toBe('again');
    await expect(broker.ping()).rejects.toBeInstanceOf(Error);
    await expect.poll(() => server.sockets.size).toBe(0);
    server.hasExchange = true;
    expect(await outcomeOf(broker)).toBe('confirmed');
    expect(server.sockets.size).toBe(1);
    expect(await unhandled()).toEqual([]);
  });
});
