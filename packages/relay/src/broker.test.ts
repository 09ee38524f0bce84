import { getEventListeners } from 'node:events';
import { describe, expect, test, vi } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { unhandledRejections } from '../test/unhandled.js';
import { callTimeoutMs, singlyConfirmedLimits } from './broker.js';
import { type Broker, type BrokerMessage, NotTakenByBroker, RefusedByBroker, publishByKey } from './index.js';
import { nats } from './nats.js';
import { rabbitmq } from './rabbitmq.js';
import { webhooks } from './webhooks.js';

const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const forever = new AbortController().signal;

function unnamed(): never {
  throw new Error('no such name');
}

const brokers: readonly (readonly [string, Broker])[] = [
  ['NATS', nats({ servers: ['127.0.0.1:1'], stream: 'none' })],
  ['RabbitMQ', rabbitmq({ url: 'amqp://127.0.0.1:1', exchange: 'none' })],
  ['a webhook', webhooks({ url: 'http://127.0.0.1:1', secret })],
];

test.each(brokers)(
  '%s takes only as many messages at once as can be confirmed one after the other in a call',
  (_name, { limits }) => {
    const slowestMs = 300;
    expect((limits?.messagesMax ?? 1_000) * slowestMs).toBeLessThanOrEqual(limits?.timeoutMs ?? 30_000);
  },
);

test.each([
  [1, 1, 1],
  [5_000, 100, 500_000],
  [30_000, undefined, 30_000_000],
  [2_147_483, 1_000, 2_147_483_000],
  [2_147_484, 1_000, 2_147_483_647],
  [2_147_483_647, 100, 2_147_483_647],
])(
  'a call with requests of %s ms for %s messages may take %s ms, which a timer can wait',
  (requestMs, max, ms) => {
    expect(callTimeoutMs(requestMs, max)).toBe(ms);
  },
);

test('a broker that confirms each message takes a hundred, and has the time of all of them', () => {
  expect(singlyConfirmedLimits(5_000)).toEqual({ messagesMax: 100, timeoutMs: 500_000 });
});

/** Publishing that a test answers, in the order of the calls. */
class Scripted {
  readonly calls: (PromiseWithResolvers<void> & { readonly message: BrokerMessage })[] = [];
  readonly publishOne = (message: BrokerMessage): Promise<void> => {
    const call = { ...Promise.withResolvers<void>(), message };
    this.calls.push(call);
    return call.promise;
  };

  get sent(): readonly string[] {
    return this.calls.map(({ message }) => nameOf(message));
  }
}

function nameOf({ attributes }: BrokerMessage): string {
  return `${attributes['subject'] ?? ''}${attributes['modelversion'] ?? ''}`;
}

/** Messages with names such as `a1`, of the model and its version. */
function messagesOf(...names: readonly string[]): readonly BrokerMessage[] {
  return names.map((name) => messageFor('t', name.slice(0, -1), Number(name.at(-1))));
}

/** Publishing that refuses some messages. */
function refusing(refuses: (message: BrokerMessage) => boolean) {
  return async (message: BrokerMessage): Promise<void> => {
    if (refuses(message)) throw new RefusedByBroker('too large');
  };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('publishing by key', () => {
  test('sends the next message of a key once the one before is confirmed, and keys at the same time', async () => {
    const scripted = new Scripted();
    const outcomes = publishByKey(messagesOf('a1', 'a2', 'b1', 'a3', 'b2'), forever, scripted.publishOne);
    expect(scripted.sent).toEqual(['a1', 'b1']);
    scripted.calls[1]?.resolve();
    await turn();
    expect(scripted.sent).toEqual(['a1', 'b1', 'b2']);
    scripted.calls[0]?.resolve();
    await turn();
    scripted.calls[2]?.resolve();
    scripted.calls[3]?.resolve();
    await turn();
    scripted.calls[4]?.resolve();
    expect(scripted.sent).toEqual(['a1', 'b1', 'b2', 'a2', 'a3']);
    expect((await outcomes).map(({ kind }) => kind)).toEqual(Array.from({ length: 5 }, () => 'confirmed'));
  });

  test('holds back what is behind a refused message of its key, with outcomes in the given order', async () => {
    const publishOne = refusing((message) => nameOf(message) === 'a2');
    expect(await publishByKey(messagesOf('a1', 'b1', 'a2', 'a3', 'b2'), forever, publishOne)).toEqual([
      { kind: 'confirmed' },
      { kind: 'confirmed' },
      { kind: 'refused', reason: 'too large' },
      { kind: 'held-back' },
      { kind: 'confirmed' },
    ]);
  });

  test('does not hold back a key that differs from a refused one only at its end', async () => {
    const long = 'x'.repeat(5_000);
    const publishOne = refusing(({ key }) => key.endsWith('a'));
    const outcomes = await publishByKey(
      messagesOf(`${long}a1`, `${long}b1`, `${long}b2`),
      forever,
      publishOne,
    );
    expect(outcomes.map(({ kind }) => kind)).toEqual(['refused', 'confirmed', 'confirmed']);
  });

  test.each([
    [1, ['a1']],
    [2, ['a1', 'b1']],
    [3, ['a1', 'b1', 'c1']],
    [9, ['a1', 'b1', 'c1']],
  ])('with a concurrency of %i sends so many keys at first', async (concurrency, sent) => {
    const scripted = new Scripted();
    const messages = messagesOf('a1', 'a2', 'b1', 'c1');
    const outcomes = publishByKey(messages, forever, scripted.publishOne, { concurrency });
    expect(scripted.sent).toEqual(sent);
    for (let index = 0; index < messages.length; index++) {
      scripted.calls[index]?.resolve();
      await turn();
    }
    expect(await outcomes).toHaveLength(4);
    expect(scripted.calls).toHaveLength(4);
  });

  test('blames a message that failed before another one was taken, and otherwise its target', async () => {
    const unhandled = unhandledRejections();
    const scripted = new Scripted();
    const publishing = publishByKey(messagesOf('a1', 'a2', 'b1', 'c1'), forever, scripted.publishOne, {
      concurrency: 1,
    });
    scripted.calls[0]?.reject(new Error('first'));
    await turn();
    scripted.calls[1]?.resolve();
    await turn();
    scripted.calls[2]?.reject(new Error('last', { cause: new Error('connection refused') }));
    expect(await publishing).toEqual([
      { kind: 'later', of: 'key', reason: 'first' },
      { kind: 'held-back' },
      { kind: 'confirmed' },
      { kind: 'later', of: 'target', reason: 'last: connection refused' },
    ]);
    expect(await unhandled()).toEqual([]);
  });

  test('does not blame a message that failed while one that was sent before it was still on its way', async () => {
    const scripted = new Scripted();
    const publishing = publishByKey(messagesOf('a1', 'b1'), forever, scripted.publishOne);
    scripted.calls[1]?.reject(new Error('down'));
    await turn();
    scripted.calls[0]?.resolve();
    expect(await publishing).toEqual([
      { kind: 'confirmed' },
      { kind: 'later', of: 'target', reason: 'down' },
    ]);
  });

  test('sends nothing more to a target after eight failures in a row, and everything to others', async () => {
    const models = Array.from({ length: 10 }, (_unused, index) => `m${String.fromCharCode(97 + index)}1`);
    const messages = [...messagesOf(...models), messageFor('other', 'z', 1)];
    const sent: string[] = [];
    const outcomes = await publishByKey(
      messages,
      forever,
      async (message) => {
        sent.push(message.topic);
        if (message.topic === 't') throw new Error('down');
      },
      { concurrency: 1, targetOf: ({ topic }) => topic },
    );
    expect(sent).toEqual([...Array.from({ length: 8 }, () => 't'), 'other']);
    expect(outcomes.map(({ kind }) => kind)).toEqual([
      ...Array.from({ length: 8 }, () => 'later'),
      'held-back',
      'held-back',
      'confirmed',
    ]);
  });

  test('sends nothing more to a target that asks for time', async () => {
    let sentCount = 0;
    const outcomes = await publishByKey(
      messagesOf('a1', 'b1', 'c1'),
      forever,
      async () => {
        if (++sentCount === 2) throw new NotTakenByBroker('429', 30_000);
      },
      { concurrency: 1 },
    );
    expect(sentCount).toBe(2);
    expect(outcomes).toEqual([
      { kind: 'confirmed' },
      { kind: 'later', of: 'target', reason: '429', afterMs: 30_000 },
      { kind: 'held-back' },
    ]);
  });

  test('sends nothing further when its time is over, and says what it knows, or rejects with the reason', async () => {
    const scripted = new Scripted();
    const caller = new AbortController();
    const publish = (...ids: string[]) =>
      publishByKey(messagesOf(...ids), caller.signal, scripted.publishOne);
    const [known, unknown] = [publish('a1', 'a2', 'c1'), publish('d1', 'd2')];
    scripted.calls[0]?.resolve();
    await vi.waitFor(() => expect(scripted.sent).toEqual(['a1', 'c1', 'd1', 'a2']));
    caller.abort(new Error('given up'));
    const unanswered = { kind: 'later', of: 'target', reason: 'there was no answer in time' };
    expect(await known).toEqual([{ kind: 'confirmed' }, unanswered, unanswered]);
    await expect(unknown).rejects.toThrow('given up');
    for (const call of scripted.calls) call.resolve();
    expect(scripted.sent).toHaveLength(4);
    await expect(publishByKey(messagesOf('b1'), caller.signal, scripted.publishOne)).rejects.toThrow(
      'given up',
    );
    expect(scripted.sent).toHaveLength(4);
  });

  test('rejects with the error of the target of a message, if nothing was sent', async () => {
    const publishing = publishByKey(messagesOf('a1'), forever, async () => undefined, { targetOf: unnamed });
    expect(await publishing.catch((error: unknown) => error)).toMatchObject({ message: 'no such name' });
  });

  test('leaves no listener behind at the signal of its caller', async () => {
    const { signal } = new AbortController();
    for (let round = 0; round < 50; round++) {
      await publishByKey(messagesOf('a1', 'b1'), signal, async () => undefined);
      await publishByKey(messagesOf('a1'), signal, async () => {
        throw new Error('down');
      }).catch(() => undefined);
    }
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  test('of no messages has no outcomes', async () => {
    expect(await publishByKey([], forever, async () => undefined)).toEqual([]);
  });
});

test.each([
  ['no time', undefined, 49],
  ['no time any more', 0, 49],
  ['a time', 1_000, 7],
])(
  'a target that asks for %s after a message gets as many others in the call',
  async (_time, afterMs, count) => {
    const messages = Array.from({ length: 50 }, (_unused, index) => messageFor('t', `m${index}`, 1));
    const outcomes = await publishByKey(
      messages,
      forever,
      async ({ attributes }) => {
        if (attributes['subject'] === 'm0') throw new NotTakenByBroker('busy', afterMs);
      },
      { concurrency: 8 },
    );
    expect(outcomes.filter(({ kind }) => kind === 'confirmed')).toHaveLength(count);
    expect(outcomes[0]).toMatchObject({ kind: 'later', of: count === 49 ? 'key' : 'target' });
  },
);
