import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { ScriptedRedis } from '../test/scripted-redis.js';
import { unhandledRejections } from '../test/unhandled.js';
import type { Broker, BrokerMessage } from './index.js';
import { type RedisOptions, redis } from './redis.js';

const forever = new AbortController().signal;

let server: ScriptedRedis;
const opened: Broker[] = [];
beforeEach(async () => {
  server = await ScriptedRedis.start();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((broker) => broker.close()));
  await server.stop();
});

function open(options: Partial<RedisOptions> = {}): Broker {
  const broker = redis({ url: server.url, ...options });
  opened.push(broker);
  return broker;
}

async function kindsOf(broker: Broker, messages: readonly BrokerMessage[]): Promise<readonly string[]> {
  return (await broker.publish(messages, forever)).map(({ kind }) => kind);
}

/** The models and versions of the entries, by transaction. */
function stored(): readonly (readonly string[])[] {
  return server.transactions.map((entries) =>
    entries.map(({ fields }) => `${fields['subject'] ?? ''}${fields['modelversion'] ?? ''}`),
  );
}

describe('Redis', () => {
  test('gets a batch as one transaction, with the attributes and the body of each message as they are', async () => {
    const messages = [messageFor('t', 'Größe "100 %" 😀', 1, '{"text":"Größe 😀"}'), messageFor('u', 'b', 1)];
    expect(await kindsOf(open(), messages)).toEqual(['confirmed', 'confirmed']);
    expect(server.transactions).toEqual([
      [
        { stream: 't', options: [], fields: { ...messages[0]?.attributes, data: '{"text":"Größe 😀"}' } },
        { stream: 'u', options: [], fields: { ...messages[1]?.attributes, data: '{"by":1}' } },
      ],
    ]);
  });

  test('gets all messages into the stream that is chosen, and about how many it keeps', async () => {
    await kindsOf(open({ stream: 's', maxLength: 7 }), [messageFor('t', 'a', 1), messageFor('u', 'a', 2)]);
    expect(
      server.transactions.map((entries) => entries.map(({ stream, options }) => [stream, ...options])),
    ).toEqual([
      [
        ['s', 'MAXLEN', '~', '7'],
        ['s', 'MAXLEN', '~', '7'],
      ],
    ]);
  });

  test('gets a message for another stream only in the transaction after the one before it of its model', async () => {
    const messages = [
      messageFor('t', 'a', 1),
      messageFor('u', 'a', 2),
      messageFor('t', 'a', 3),
      messageFor('t', 'b', 1),
      messageFor('t', 'b', 2),
    ];
    expect(new Set(await kindsOf(open(), messages))).toEqual(new Set(['confirmed']));
    expect(stored()).toEqual([['a1', 'b1', 'b2'], ['a2'], ['a3']]);
    server.transactions.splice(0);
    await kindsOf(open(), [messageFor('t', 'a', 1), messageFor('u', 'a', 2), messageFor('u', 'a', 3)]);
    expect(stored()).toEqual([['a1'], ['a2', 'a3']]);
  });

  test('gets what it has confirmed only once if the next transaction of a call has no answer', async () => {
    server.refuses = ({ stream }) => {
      if (stream === 'u') server.cut();
      return undefined;
    };
    const messages = [messageFor('t', 'a', 1), messageFor('t', 'b', 1), messageFor('u', 'a', 2)];
    expect(await kindsOf(open(), messages)).toEqual(['confirmed', 'confirmed', 'later']);
  });

  test('gets what it has confirmed only once if the time of a call is over before the next transaction', async () => {
    const call = new AbortController();
    server.refuses = () => {
      server.isSilent = true;
      return undefined;
    };
    server.onSilence = () => call.abort(new Error('its time is over'));
    const patient = open({ timeoutMs: 3_000 });
    expect(
      await patient.publish([messageFor('t', 'a', 1), messageFor('u', 'a', 2)], call.signal),
    ).toMatchObject([{ kind: 'confirmed' }, { kind: 'later', reason: 'its time is over' }]);
  });

  test('gets nothing for single streams if it refuses all of them when the time of a call is over', async () => {
    const call = new AbortController();
    let refusedCount = 0;
    server.refusesAll = () => {
      refusedCount++;
      call.abort(new Error('its time is over'));
      return 'EXECABORT Transaction discarded';
    };
    const outcomes = await open().publish([messageFor('t', 'a', 1), messageFor('u', 'b', 1)], call.signal);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['later', 'later']);
    expect(refusedCount).toBe(1);
  });

  test('gets what it has confirmed only once if it refuses one stream, and another one has no answer', async () => {
    server.refusesAll = (entries) =>
      entries.some(({ stream }) => stream === 'u') ? 'EXECABORT Transaction discarded' : undefined;
    server.refuses = ({ stream }) => {
      if (stream === 'v') server.cut();
      return undefined;
    };
    const messages = ['t', 'u', 'v'].map((stream) => messageFor(stream, stream, 1));
    expect(await kindsOf(open(), messages)).toEqual(['confirmed', 'later', 'later']);
  });

  test('gets nothing of a model behind a message that it refuses, not even for another stream', async () => {
    server.refuses = ({ stream }) => (stream === 'u' ? 'WRONGTYPE no stream' : undefined);
    const messages = [
      messageFor('t', 'a', 1),
      messageFor('u', 'a', 2),
      messageFor('t', 'a', 3),
      messageFor('t', 'b', 1),
      messageFor('t', 'b', 2),
    ];
    const outcomes = await open().publish(messages, forever);
    expect(outcomes.map(({ kind }) => kind)).toEqual([
      'confirmed',
      'later',
      'held-back',
      'confirmed',
      'confirmed',
    ]);
    expect(outcomes[1]).toMatchObject({ reason: expect.stringContaining('WRONGTYPE') as string });
    expect(stored()).toEqual([['a1', 'b1', 'b2'], ['a2']]);
  });

  test('is believed to hold back what follows a refused command of the same model in a transaction', async () => {
    server.refuses = ({ fields }) =>
      fields['modelversion'] === '1' && fields['subject'] === 'a' ? 'ERR Elements are too large' : undefined;
    const messages = [messageFor('t', 'a', 1), messageFor('t', 'a', 2), messageFor('t', 'b', 1)];
    expect(await kindsOf(open(), messages)).toEqual(['refused', 'held-back', 'confirmed']);
  });

  test('keeps models apart whose keys are long and differ only at the end', async () => {
    const long = 'x'.repeat(5_000);
    server.refuses = ({ fields }) =>
      fields['subject'] === `${long}a` ? 'ERR Elements are too large' : undefined;
    const messages = [
      messageFor('t', `${long}a`, 1),
      messageFor('t', `${long}b`, 1),
      messageFor('u', `${long}b`, 2),
    ];
    expect(await kindsOf(open(), messages)).toEqual(['refused', 'confirmed', 'confirmed']);
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
      const messages = [
        messageFor('t', 'a', 1, character.repeat(count)),
        messageFor('t', 'a', 2),
        messageFor('t', 'b', 1),
      ];
      expect(await kindsOf(open({ messageBytesMax: 100 }), messages)).toEqual(
        fits ? ['confirmed', 'confirmed', 'confirmed'] : ['refused', 'held-back', 'confirmed'],
      );
      expect(stored()).toEqual([fits ? ['a1', 'a2', 'b1'] : ['b1']]);
    },
  );

  test('gets no transaction if every message is too large', async () => {
    expect(await kindsOf(open({ messageBytesMax: 1 }), [messageFor('t', 'a', 1)])).toEqual(['refused']);
    expect(server.transactions).toEqual([]);
  });

  test.each([
    ['EXECABORT discarded', 1],
    ['OOM out of memory', 1],
    ['NOREPLICAS not enough', 1],
    ['READONLY replica', 2],
    ['MOVED 1 127.0.0.1:7001', 2],
    ['LOADING the data', 2],
    ['CLUSTERDOWN no slot', 2],
  ])('gets a batch later if it answers %s, on connection %i', async (aborts, connectionCount) => {
    const broker = open();
    server.aborts = aborts;
    expect(await broker.publish([messageFor('t', 'a', 1)], forever)).toEqual([
      { kind: 'later', of: 'target', reason: aborts },
    ]);
    server.aborts = undefined;
    expect(await kindsOf(broker, [messageFor('t', 'a', 1)])).toEqual(['confirmed']);
    expect(server.connectionCount).toBe(connectionCount);
  });

  test.each([
    ['cluster', 'master', 'a node of a cluster'],
    ['sentinel', 'master', 'a sentinel'],
    ['standalone', 'slave', 'a replica'],
  ])('that is a %s, and %s, gets nothing, and a ping says so', async (mode, role, reason) => {
    const unhandled = unhandledRejections();
    const broker = open();
    await broker.ping();
    server.info = `redis_mode:${mode}\r\nrole:${role}\r\n`;
    await expect(broker.ping()).rejects.toThrow(reason);
    await expect(broker.publish([messageFor('t', 'a', 1)], forever)).rejects.toThrow(reason);
    expect(server.transactions).toEqual([]);
    await expect.poll(() => server.sockets.size).toBe(0);
    server.info = 'redis_mode:standalone\r\nrole:master\r\n';
    expect(await kindsOf(broker, [messageFor('t', 'a', 1)])).toEqual(['confirmed']);
    expect(await unhandled()).toEqual([]);
  });

  test.each([
    ['+none', undefined],
    ['+stream', undefined],
    ['-NOPERM no permissions to run TYPE', undefined],
    ['+string', 'The key events has a string, not a stream'],
  ] as const)('that says %s of the type of the stream answers a ping with %s', async (type, reason) => {
    const asked: string[] = [];
    server.typeOf = (key) => {
      asked.push(key);
      return type;
    };
    const pinged = await open({ stream: 'events' })
      .ping()
      .catch((error: unknown) => error);
    expect(pinged).toEqual(reason && new Error(reason));
    expect(asked).toEqual(['events']);
  });

  test('gets nothing further from a call whose time is over, which says what it knows', async () => {
    const caller = new AbortController();
    server.refuses = () => {
      caller.abort(new Error('given up'));
      return undefined;
    };
    const messages = [messageFor('t', 'a', 1), messageFor('u', 'a', 2)];
    expect(await open().publish(messages, caller.signal)).toEqual([
      { kind: 'confirmed' },
      { kind: 'held-back' },
    ]);
    expect(stored()).toEqual([['a1']]);
    await expect(open().publish(messages, caller.signal)).rejects.toThrow('given up');
    expect(server.transactions).toHaveLength(1);
  });

  test('is connected once, by the first of callers that come at the same time, and stays so', async () => {
    const broker = open();
    await Promise.all([broker.ping(), broker.ping(), kindsOf(broker, [messageFor('t', 'a', 1)])]);
    for (let round = 0; round < 20; round++) await kindsOf(broker, [messageFor('t', 'a', round)]);
    expect(server.connectionCount).toBe(1);
    await broker.close();
    await expect.poll(() => server.sockets.size).toBe(0);
    await expect(broker.ping()).rejects.toThrow('closed');
  });

  test('is connected once more after the connection was lost, and leaves nothing behind', async () => {
    const unhandled = unhandledRejections();
    const broker = open();
    for (let round = 1; round <= 5; round++) {
      await expect
        .poll(() => kindsOf(broker, [messageFor('t', 'a', round)]).catch(() => []))
        .toEqual(['confirmed']);
      server.isSilent = true;
      const lost = [broker.ping(), broker.ping()].map((each) => each.catch((error: unknown) => error));
      server.cut();
      for (const error of await Promise.all(lost)) expect(error).toBeInstanceOf(Error);
      server.isSilent = false;
    }
    expect(server.connectionCount).toBe(5);
    await expect.poll(() => server.sockets.size).toBe(0);
    expect(await unhandled()).toEqual([]);
  });

  test('that is silent on a connection gets another one after the timeout, and the first one is closed', async () => {
    const unhandled = unhandledRejections();
    const broker = open({ timeoutMs: 1_000 });
    await broker.ping();
    server.isSilent = true;
    await expect(broker.publish([messageFor('t', 'a', 1)], forever)).rejects.toThrow('1000 ms');
    server.isSilent = false;
    await broker.ping();
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
});
