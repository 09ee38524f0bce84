import { Producer } from '@platformatic/kafka';
import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { messageFor } from '../test/broker-suite.js';
import { ScriptedCluster, lostConnection } from '../test/scripted-cluster.js';
import { unhandledRejections } from '../test/unhandled.js';
import type { Broker, BrokerMessage } from './index.js';
import { topicPatienceMs } from './kafka-metadata.js';
import { type KafkaOptions, kafka } from './kafka.js';

const forever = new AbortController().signal;

let cluster: ScriptedCluster;
const opened: Broker[] = [];
beforeEach(() => {
  cluster = new ScriptedCluster();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((broker) => broker.close()));
});

function open(options: Partial<KafkaOptions> = {}): Broker {
  const broker = kafka({ bootstrapServers: ['127.0.0.1:1'], ...options });
  opened.push(broker);
  return broker;
}

async function kindsOf(
  broker: Broker,
  messages: readonly BrokerMessage[],
  signal = forever,
): Promise<readonly string[]> {
  return (await broker.publish(messages, signal)).map(({ kind }) => kind);
}

/** Messages for a topic, each of a model of its own. */
function messagesFor(topic: string, count: number, body = '{}'): readonly BrokerMessage[] {
  return Array.from({ length: count }, (_unused, index) => messageFor(topic, `${topic}-${index}`, 1, body));
}

/** How many records each request had, by topic. */
function counts(topic: string): readonly number[] {
  return cluster.requests.flatMap(({ batches }) =>
    batches.flatMap((batch) => (batch.topic === topic ? [batch.count] : [])),
  );
}

/** The number of the first record in each request. */
function sequences(): readonly number[] {
  return cluster.requests.flatMap(({ batches }) => batches[0]?.sequence ?? -1);
}

function timerCount(): number {
  return process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
}

describe('Kafka', () => {
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
        messageFor('t1', 'a', 1, character.repeat(count)),
        messageFor('t1', 'a', 2),
        messageFor('t1', 'b', 1),
      ];
      expect(await kindsOf(open({ messageBytesMax: 100 }), messages)).toEqual(
        fits ? ['confirmed', 'confirmed', 'confirmed'] : ['refused', 'held-back', 'confirmed'],
      );
      expect(counts('t1')).toEqual([fits ? 3 : 1]);
    },
  );

  test('gets all messages into the topic that is chosen', async () => {
    await kindsOf(open({ topic: 't2' }), [messageFor('t1', 'a', 1), messageFor('t3', 'b', 1)]);
    expect(cluster.requests).toMatchObject([{ server: 2, batches: [{ topic: 't2', count: 2 }] }]);
  });

  test('gets smaller batches of the topic whose batch was too large, from then on, and of no other', async () => {
    const broker = open();
    cluster.verdict = ({ topic, count }) => ({ errorCode: topic === 't2' && count > 2 ? 10 : 0 });
    const messages = [...messagesFor('t1', 8), ...messagesFor('t2', 8)];
    expect(new Set(await kindsOf(broker, messages))).toEqual(new Set(['confirmed']));
    expect(Math.max(...counts('t2'))).toBe(8);
    expect(counts('t1')).toEqual([8]);
    cluster.requests.splice(0);
    await kindsOf(broker, messages);
    expect(Math.max(...counts('t2'))).toBeLessThanOrEqual(2);
    expect(counts('t1')).toEqual([8]);
  });

  test('gets smaller batches in the same call alone if it finds a record invalid', async () => {
    const broker = open();
    cluster.verdict = ({ count }) => ({ errorCode: count > 2 ? 87 : 0 });
    await kindsOf(broker, messagesFor('t1', 8));
    expect(counts('t1').at(-1)).toBeLessThanOrEqual(2);
    cluster.verdict = () => ({});
    cluster.requests.splice(0);
    await kindsOf(broker, messagesFor('t1', 8));
    expect(counts('t1')).toEqual([8]);
  });

  test('refuses only a single record that is too large', async () => {
    cluster.verdict = ({ count }) => ({ errorCode: count > 1 ? 10 : 18 });
    expect(await kindsOf(open(), messagesFor('t1', 3))).toEqual(['refused', 'refused', 'refused']);
    expect(counts('t1')[0]).toBe(3);
  });

  test('gets messages for the partitions that were added last, from older producers as well', async () => {
    const broker = open();
    const message = messageFor('t1', 'model', 1);
    const partitions = () => cluster.requests.map(({ batches: [batch] }) => batch?.partition);
    const publishTogether = (count: number) =>
      Promise.all(Array.from({ length: count }, () => kindsOf(broker, [message])));
    await publishTogether(3);
    cluster.partitionCount = 8;
    cluster.requests.splice(0);
    // The last one is a new producer, which finds the new partitions; what it finds is for all.
    await publishTogether(4);
    const [last] = partitions().slice(-1);
    expect(partitions()).toEqual([last, last, last, last]);
    expect(last).toBeGreaterThan(0);
    cluster.requests.splice(0);
    await publishTogether(4);
    expect(partitions()).toEqual([last, last, last, last]);
    // A topic that is deleted and created again may have fewer partitions.
    cluster.partitionCount = 1;
    cluster.requests.splice(0);
    cluster.verdict = ({ partition }) => ({ errorCode: partition === 0 ? 0 : 3 });
    await publishTogether(4);
    for (let round = 0; round < 3; round++) await publishTogether(4);
    expect(partitions().at(-1)).toBe(0);
  });

  test('gets the calls of one caller from one producer, and those of two at the same time from two', async () => {
    const broker = open();
    for (let round = 0; round < 10; round++) await kindsOf(broker, messagesFor('t1', 1));
    expect(cluster.identities).toHaveBeenCalledTimes(1);
    for (let round = 0; round < 10; round++)
      await Promise.all([kindsOf(broker, messagesFor('t1', 1)), kindsOf(broker, messagesFor('t1', 1))]);
    expect(cluster.identities).toHaveBeenCalledTimes(2);
  });

  test('gets nothing more from a producer whose call has failed, and the next call from another one', async () => {
    const unhandled = unhandledRejections();
    const closed = vi.spyOn(Producer.prototype, 'close');
    const broker = open();
    for (let round = 1; round <= 5; round++) {
      cluster.failure = () => undefined;
      for (const _call of [1, 2]) await kindsOf(broker, messagesFor('t1', 1));
      cluster.failure = () => new Error('refused');
      expect(await kindsOf(broker, messagesFor('t1', 1))).toEqual(['later']);
      expect(closed).toHaveBeenCalledTimes(round);
      expect(cluster.identities).toHaveBeenCalledTimes(round);
      // The numbers of another producer begin again.
      expect(sequences().slice(-3)).toEqual([0, 1, 2]);
    }
    expect(await unhandled()).toEqual([]);
  });

  test('gets a producer that begins with the next bootstrap server each time, until one has answered', async () => {
    const bootstrapServers = ['127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3'];
    const broker = open({ bootstrapServers });
    let answering: number | undefined;
    cluster.metadata.mockImplementation((_topics, server) => {
      if (server !== answering) throw new Error('silent');
    });
    cluster.failure = () => new Error('refused');
    const queried: string[] = [];
    for (answering of [undefined, undefined, undefined, 2, 2, 3, 3]) {
      cluster.metadata.mockClear();
      await kindsOf(broker, messagesFor('t1', 1)).catch(() => undefined);
      const servers = cluster.metadata.mock.calls.map(([, server]) => server);
      queried.push(servers.slice(0, 3).join(''));
    }
    // The last calls ask again whether any server is there.
    expect(queried).toEqual(['123', '231', '312', '122', '22', '233', '33']);
  });

  test.each([
    ['too long', 'x'.repeat(250), 0],
    ['invalid', 'a b', 17],
  ])('answers pings after it has refused a message for a topic that is %s', async (_what, id, errorCode) => {
    const broker = open({ topic: 't{id}' });
    cluster.describe = (topic) => ({ errorCode: topic.includes(id) ? errorCode : 0 });
    expect(await kindsOf(broker, [messageFor('t', '1', 1)])).toEqual(['confirmed']);
    expect(await kindsOf(broker, [messageFor('t', id, 1)])).toEqual(['refused']);
    await broker.ping();
    expect(cluster.metadata.mock.lastCall?.[0]).toEqual(['t1']);
  });

  test.each([true, false])(
    'whose topic is missing answers a ping if it creates topics: %s',
    async (creates) => {
      const broker = open({ topic: 't1', client: { autocreateTopics: creates } });
      cluster.describe = () => ({ errorCode: 3 });
      const pinged = await broker.ping().then(
        () => true,
        () => false,
      );
      expect(pinged).toBe(creates);
    },
  );

  test('leaves no timer, and no listener at the signals of its callers, however calls end', async () => {
    const unhandled = unhandledRejections();
    const { signal } = new AbortController();
    const broker = open({ timeoutMs: 60_000 });
    const before = timerCount();
    for (let round = 0; round < 20; round++) {
      cluster.failure = () => (round % 2 === 0 ? undefined : new Error('refused'));
      await kindsOf(broker, messagesFor('t1', 1), signal).catch(() => undefined);
      await broker.ping();
    }
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    expect(timerCount()).toBe(before);
    expect(await unhandled()).toEqual([]);
  });

  test('keeps nothing of a producer whose call has failed, and closes it no second time at the end', async () => {
    const closed = vi.spyOn(Producer.prototype, 'close');
    const broker = open();
    cluster.failure = () => new Error('refused');
    const left = await leftBehind(async () => {
      expect(await kindsOf(broker, messagesFor('t1', 1))).toEqual(['later']);
      cluster.metadata.mockImplementation(() => {
        throw new Error('no answer');
      });
      await expect(broker.ping()).rejects.toThrow('no answer');
      cluster.metadata.mockReset();
    });
    expect(left).toEqual([]);
    const closedCount = closed.mock.calls.length;
    expect(closedCount).toBe(8);
    await broker.close();
    expect(closed).toHaveBeenCalledTimes(closedCount);
  });

  test('leaves no rejection behind when a request fails after the caller has given up, or after its time', async () => {
    const unhandled = unhandledRejections();
    const answer = Promise.withResolvers<void>();
    cluster.before = () => answer.promise;
    cluster.failure = () => new Error('refused late');
    const caller = new AbortController();
    const givenUp = kindsOf(open(), messagesFor('t1', 1), caller.signal);
    await expect.poll(() => cluster.requests.length).toBe(1);
    caller.abort(new Error('given up'));
    await expect(givenUp).rejects.toThrow('given up');
    const [outcome] = await open({ timeoutMs: 50 }).publish(messagesFor('t1', 1), forever);
    expect(outcome).toMatchObject({ kind: 'later', reason: expect.stringContaining('50 ms') });
    answer.resolve();
    expect(await unhandled()).toEqual([]);
  });

  test('gets nothing from a caller who has given up before, nor after the end', async () => {
    const broker = open();
    await expect(
      kindsOf(broker, messagesFor('t1', 1), AbortSignal.abort(new Error('given up'))),
    ).rejects.toThrow('given up');
    await broker.close();
    await expect(kindsOf(broker, messagesFor('t1', 1))).rejects.toThrow('closed');
    await expect(broker.ping()).rejects.toThrow('closed');
    expect(cluster.requests).toEqual([]);
    expect(cluster.metadata).not.toHaveBeenCalled();
  });

  test('gets a message only after the one before it of its model, if that goes to another server', async () => {
    const first = Promise.withResolvers<void>();
    cluster.before = ({ server }) => (server === 1 ? first.promise : undefined);
    const messages = [messageFor('t1', 'a', 1), messageFor('t2', 'a', 2), messageFor('t2', 'b', 1)];
    const publishing = kindsOf(open(), messages);
    await expect.poll(() => cluster.requests.length).toBe(2);
    expect(counts('t2')).toEqual([1]);
    first.resolve();
    expect(await publishing).toEqual(['confirmed', 'confirmed', 'confirmed']);
    expect(counts('t2')).toEqual([1, 1]);
  });

  test('gets nothing of a model behind a message that one of two servers does not permit', async () => {
    cluster.verdict = ({ topic }) => ({ errorCode: topic === 't1' ? 29 : 0 });
    const messages = [
      messageFor('t1', 'a', 1),
      messageFor('t2', 'a', 2),
      messageFor('t2', 'b', 1),
      messageFor('t1', 'b', 2),
    ];
    expect(await kindsOf(open(), messages)).toEqual(['later', 'held-back', 'confirmed', 'later']);
    expect(counts('t2')).toEqual([1]);
  });

  test.each([
    [
      'has no answer',
      () => (cluster.failure = ({ server }) => (server === 2 ? new Error('lost') : undefined)),
      'lost',
    ],
    [
      'has too few replicas',
      () => (cluster.verdict = ({ topic }) => ({ errorCode: topic === 't2' ? 19 : 0 })),
      'fewer in-sync replicas',
    ],
  ])('gets what one partition has taken only once, while another one %s', async (_what, fail, reason) => {
    const broker = open();
    fail();
    const messages = [
      messageFor('t1', 'a', 1),
      messageFor('t2', 'b', 1),
      messageFor('t2', 'c', 1),
      messageFor('t1', 'c', 2),
      messageFor('t1', 'd', 1),
    ];
    const outcomes = await broker.publish(messages, forever);
    expect(outcomes.map(({ kind }) => kind)).toEqual([
      'confirmed',
      'later',
      'later',
      'held-back',
      'confirmed',
    ]);
    expect(outcomes[1]).toMatchObject({ of: 'target', reason: expect.stringContaining(reason) as string });
    // The numbers of a producer with a failure may differ from the server's.
    cluster.failure = () => undefined;
    cluster.verdict = () => ({});
    expect(await kindsOf(broker, messages.slice(1, 4))).toEqual(['confirmed', 'confirmed', 'confirmed']);
    // One for each server, twice.
    expect(cluster.identities).toHaveBeenCalledTimes(4);
  });

  test('lets a partition alone wait whose leader gives no answer, if another server answers', async () => {
    cluster.failure = lostConnection;
    const messages = [messageFor('t1', 'a', 1), messageFor('t1', 'a', 2), messageFor('t1', 'b', 1)];
    expect(await kindsOf(open(), messages)).toEqual(['later', 'held-back', 'later']);
    const noAnswer = new Error('no answer');
    cluster.failure = () => {
      cluster.metadata.mockImplementation(() => {
        throw noAnswer;
      });
      return lostConnection();
    };
    await expect(kindsOf(open(), messages)).rejects.toThrow('no answer');
  });

  test('lets models of a partition alone wait that answers that it has too few replicas', async () => {
    cluster.verdict = () => ({ errorCode: 19 });
    const messages = [messageFor('t1', 'a', 1), messageFor('t1', 'b', 1), messageFor('t1', 'a', 2)];
    expect(await kindsOf(open(), messages)).toEqual(['later', 'later', 'held-back']);
  });

  test('gives its servers less time for their replicas than a request has', async () => {
    const waits: number[] = [];
    cluster.onRequest = (waitMs) => waits.push(waitMs);
    await kindsOf(open({ timeoutMs: 2_000 }), messagesFor('t1', 1));
    expect(waits).toEqual([1_600]);
  });

  test('gets nothing more for a partition that has failed in the same call, and all for others', async () => {
    cluster.failure = ({ server }) => (server === 2 ? new Error('lost') : undefined);
    const large = 'x'.repeat(600_000);
    const messages = ['a', 'b', 'c'].flatMap((model) => [
      messageFor('t1', model, 1, large),
      messageFor('t2', `${model}2`, 1, large),
    ]);
    const expected = ['confirmed', 'later', 'confirmed', 'later', 'confirmed', 'later'];
    expect(await kindsOf(open(), messages)).toEqual(expected);
    expect([counts('t1'), counts('t2')]).toEqual([[1, 1, 1], [1]]);
  });

  test('gets what it has taken only once if the time is over before the rest is answered', async () => {
    const timeIsUp = new AbortController();
    cluster.before = ({ server }) => (server === 2 ? new Promise(() => undefined) : undefined);
    const messages = [messageFor('t1', 'a', 1), messageFor('t2', 'b', 1)];
    const publishing = kindsOf(open(), messages, timeIsUp.signal);
    await expect.poll(() => cluster.requests.length).toBe(2);
    await new Promise((resolve) => setImmediate(resolve));
    timeIsUp.abort(new Error('time is up'));
    expect(await publishing).toEqual(['confirmed', 'later']);
  });

  test('stores what goes to topics that exist at once, although others are missing', async () => {
    cluster.describe = (topic) => (topic === 't1' ? {} : { errorCode: 3, partitions: [] });
    const missing = Array.from({ length: 999 }, (_, index) => messageFor(`t${index + 2}`, `${index}`, 1));
    const broker = open();
    const begunMs = performance.now();
    const kinds = await kindsOf(broker, [...missing, messageFor('t1', 'a', 1)]);
    expect(performance.now() - begunMs).toBeLessThan(topicPatienceMs);
    expect(kinds).toEqual([...missing.map(() => 'later'), 'confirmed']);
    expect(cluster.metadata).toHaveBeenCalledTimes(1);
    cluster.describe = () => ({});
    await expect.poll(() => kindsOf(broker, missing.slice(0, 1)), { timeout: 3_000 }).toEqual(['confirmed']);
  });

  test('lets a message for a missing topic wait if the time of the call is over before it has appeared', async () => {
    cluster.describe = () => ({ errorCode: 3, partitions: [] });
    const timeIsUp = AbortSignal.timeout(topicPatienceMs / 2);
    expect(await open().publish([messageFor('t1', 'a', 1)], timeIsUp)).toEqual([
      { kind: 'later', of: 'target', reason: 'the topic t1 does not exist' },
    ]);
  });

  test('is told by partition what takes nothing, as soon as it has said how many there are', async () => {
    const message = messageFor('t1', 'a', 1);
    const broker = open();
    expect(broker.targetOf?.(message)).toBe('t1');
    await kindsOf(broker, [message]);
    expect(broker.targetOf?.(message)).toBe('t1');
    expect(broker.targetOf?.(messageFor('t1', 'a', 2))).toBe('t1:0');
    const byId = open({ topic: 't1{id}' });
    await kindsOf(byId, [messageFor('t1', '1', 1)]);
    expect(byId.targetOf?.(messageFor('t1', '1', 2))).toBe('t1*');
  });
});
