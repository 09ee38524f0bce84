import { MultipleErrors, ProtocolError, protocolErrors } from '@platformatic/kafka';
import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { ScriptedCluster, lostConnection } from '../test/scripted-cluster.js';
import { unhandledRejections } from '../test/unhandled.js';
import { KafkaMetadata, type PartitionCount } from './kafka-metadata.js';
import { type KafkaAnswer, KafkaProducer, isInvalid, isTooLarge, refusalOf } from './kafka-producer.js';
import { type KafkaRecord, recordOf } from './kafka-records.js';
import { SilentServers } from './kafka-silence.js';

const forever = new AbortController().signal;
const options = { clientId: 'test', bootstrapBrokers: [{ host: 'kafka', port: 1 }], timeout: 10_000 };
/** The answers after which a batch is not sent again as it is. */
const finalCodes = [10, 17, 18, 29, 87];

let cluster: ScriptedCluster;
let metadata: KafkaMetadata;
const silent = new SilentServers('test', {});
let producer: KafkaProducer;
beforeEach(() => {
  cluster = new ScriptedCluster();
  metadata = new KafkaMetadata(false);
  producer = new KafkaProducer(options, metadata, silent);
});
afterEach(() => producer.end());

function recordFor(topic: string, version = 1): KafkaRecord {
  return recordOf(messageFor(topic, topic, version), topic, 1);
}

/** The answers of all servers by partition; rejects with the first error of any. */
async function send(records: readonly KafkaRecord[]): Promise<ReadonlyMap<string, KafkaAnswer>> {
  const all = new Map<string, KafkaAnswer>();
  for (const { answers } of await producer.send(records))
    for (const [place, answer] of await answers) {
      if (answer instanceof Error) throw answer;
      all.set(place, answer);
    }
  return all;
}

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

describe('a request to produce', () => {
  test('goes to each server that leads a partition, with all batches for it', async () => {
    const answers = await send([recordFor('t1'), recordFor('t2'), recordFor('t1', 2)]);
    expect([...answers.keys()].toSorted()).toEqual(['t1:0', 't2:0']);
    expect(cluster.requests).toMatchObject([
      { server: 1, batches: [{ topic: 't1', count: 2, sequence: 0 }] },
      { server: 2, batches: [{ topic: 't2', count: 1, sequence: 0 }] },
    ]);
  });

  test('has the numbers of its records for each partition, which go on only behind what was taken', async () => {
    await send([recordFor('t1'), recordFor('t1', 2), recordFor('t2')]);
    cluster.verdict = ({ topic }) => ({ errorCode: topic === 't1' ? 10 : 0 });
    await send([recordFor('t1', 3), recordFor('t2', 2)]);
    cluster.verdict = () => ({});
    await send([recordFor('t1', 3), recordFor('t2', 3)]);
    await send([recordFor('t1', 4)]);
    const sequences = cluster.requests.flatMap(({ batches }) =>
      batches.map(({ topic, sequence }) => `${topic} ${sequence}`),
    );
    expect(sequences).toEqual(['t1 0', 't2 0', 't1 2', 't2 1', 't1 2', 't2 2', 't1 3']);
    // One for each connection.
    expect(cluster.identities).toHaveBeenCalledTimes(2);
  });

  test('has another producer id, and the first numbers, after its connection was lost', async () => {
    let isLost = false;
    cluster.failure = () => (isLost ? lostConnection() : undefined);
    await send([recordFor('t1')]);
    isLost = true;
    await failureOf(send([recordFor('t1', 2)]));
    isLost = false;
    cluster.requests.splice(0);
    await send([recordFor('t1', 2), recordFor('t2')]);
    const ids = cluster.requests.map(({ batches: [batch] }) => [batch?.producerId, batch?.sequence]);
    expect(ids).toEqual([
      [2n, 0],
      [3n, 0],
    ]);
  });

  test.each([
    ['at once, with the same numbers', 900, 'topic', [1, 1]],
    ['as a new one if the cluster may have been restored meanwhile', 1_001, 'topic', [1, 0]],
    ['as a new one if the topic is another one', 0, 'another topic', [1, 0]],
    ['as a new one if the server says no ids', 0, '00000000-0000-0000-0000-000000000000', [1, 0]],
  ])('is repeated %s', async (_how, ms, topicId, expected) => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    cluster.describe = () => ({ topicId: 'topic' });
    await send([recordFor('t1')]);
    cluster.failure = () => {
      cluster.failure = () => undefined;
      cluster.describe = () => ({ topicId });
      vi.advanceTimersByTime(ms);
      return lostConnection();
    };
    cluster.requests.splice(0);
    await send([recordFor('t1', 2)]);
    const batches = cluster.requests.flatMap((request) => request.batches);
    expect(batches.map(({ sequence }) => sequence)).toEqual(expected);
    const isSame = batches[0]?.producerId === batches[1]?.producerId;
    expect(isSame).toBe(expected[1] === 1);
    await send([recordFor('t1', 3)]);
    expect(cluster.requests.at(-1)?.batches[0]?.producerId).toBe(2n);
  });

  test('is sent once more when its connection is lost, with the same numbers, and no further', async () => {
    let lostCount = 0;
    cluster.failure = () => (lostCount++ === 0 ? lostConnection() : undefined);
    await send([recordFor('t1')]);
    expect(cluster.requests.map(({ batches }) => batches[0]?.sequence)).toEqual([0, 0]);
    cluster.failure = lostConnection;
    expect(await failureOf(send([recordFor('t1')]))).toMatchObject({ code: 'PLT_KFK_NETWORK' });
    expect(cluster.requests).toHaveLength(4);
  });

  test('that was sent once more is believed only if it was taken', async () => {
    for (const errorCode of finalCodes) {
      let lostCount = 0;
      cluster.failure = () => (lostCount++ === 0 ? lostConnection() : undefined);
      cluster.verdict = () => ({ errorCode });
      expect(await failureOf(send([recordFor('t1')]))).toMatchObject({ apiCode: errorCode });
    }
  });

  test('is not sent again after an error other than the loss of its connection', async () => {
    const refused = new Error('refused');
    cluster.failure = () => refused;
    expect(await failureOf(send([recordFor('t1')]))).toBe(refused);
    expect(cluster.requests).toHaveLength(1);
  });

  test('that fails at one server, and later at another, leaves no rejection behind', async () => {
    const unhandled = unhandledRejections();
    const second = Promise.withResolvers<void>();
    cluster.before = ({ server }) => (server === 2 ? second.promise : undefined);
    cluster.failure = ({ server }) => new Error(`refused by ${server}`);
    const failure = await failureOf(send([recordFor('t1'), recordFor('t2')]));
    expect(failure).toMatchObject({ message: 'refused by 1' });
    second.resolve();
    expect(await unhandled()).toEqual([]);
  });

  test('is final by the answers about its records alone, and fails after every other one', async () => {
    const codes = Object.values(protocolErrors).map(({ code }) => code);
    const final: number[] = [];
    const others: (number | undefined)[] = [];
    for (const errorCode of codes.filter((code) => code !== 0)) {
      cluster.verdict = () => ({ errorCode });
      const failure = await failureOf(send([recordFor('t1')]));
      if (failure === undefined) final.push(errorCode);
      else others.push((failure as { readonly apiCode?: number }).apiCode);
    }
    expect(new Set([...final, ...others])).toEqual(new Set(codes.filter((code) => code !== 0)));
    expect(final.toSorted((one, other) => one - other)).toEqual(finalCodes);
  });

  test('fails for the partition alone that has no answer', async () => {
    const other = recordOf(messageFor('t3', 'b', 1), 't3', 1);
    cluster.verdict = ({ topic }) => (topic === 't3' ? undefined : {});
    cluster.describe = () => ({ partitions: [{ partitionIndex: 0, leaderId: 1 }] });
    const [request, ...others] = await producer.send([recordFor('t1'), other]);
    expect(others).toEqual([]);
    expect(request?.places).toEqual(['t1:0', 't3:0']);
    const answers = await request?.answers;
    expect(answers?.get('t1:0')).toMatchObject({ errorCode: 0 });
    expect(answers?.get('t3:0')).toBeInstanceOf(ProtocolError);
  });

  test('fails at one server, and is answered by another', async () => {
    cluster.failure = ({ server }) => (server === 1 ? new Error('refused') : undefined);
    const [first, second] = await producer.send([recordFor('t1'), recordFor('t2')]);
    await expect(first?.answers).rejects.toThrow('refused');
    expect([...((await second?.answers)?.keys() ?? [])]).toEqual(['t2:0']);
  });

  test('fails if a partition has no leader', async () => {
    cluster.describe = () => ({ partitions: [{ partitionIndex: 0, leaderId: -1 }] });
    await expect(send([recordFor('t1')])).rejects.toThrow('leader of t1:0');
    const [request] = await producer.send([recordFor('t1')]);
    await expect(request?.answers).resolves.toBeDefined();
    expect(cluster.requests).toEqual([]);
  });

  test.each([
    [3, 8, undefined],
    [3, 9, 9],
    [9, 13, 9],
    [10, 10, 10],
    [10, 13, 10],
    [11, 13, 11],
    [12, 13, undefined],
  ])(
    'to servers that take versions %i to %i has the lowest version possible, %s',
    async (min, max, version) => {
      cluster = new ScriptedCluster([min, max]);
      const failure = await failureOf(send([recordFor('t1')]));
      expect(failure instanceof Error).toBe(version === undefined);
      expect(cluster.requests[0]?.version).toBe(version);
    },
  );
});

/** For how long it sends nothing to a server from now on. */
async function silenceMs(): Promise<number> {
  for (let ms = 0; ; ms++) {
    cluster.metadata.mockClear();
    await producer.ping(undefined);
    if (cluster.metadata.mock.calls.length > 0) return ms;
    vi.advanceTimersByTime(1);
  }
}

describe('a throttled producer', () => {
  beforeEach(() => {
    // The clock of the silence stays where it is; delays take the time that they take.
    vi.useFakeTimers({ toFake: ['performance'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test.each([
    ['first', 1],
    ['last', 2],
  ])(
    'is silent for the longest time that a server demands, although that server answers %s',
    async (_when, slow) => {
      const other = Promise.withResolvers<void>();
      cluster.throttleMs = (server) => (server === slow ? 300 : 20);
      cluster.before = ({ server }) => (server === 2 ? other.promise : undefined);
      const sending = send([recordFor('t1'), recordFor('t2')]);
      other.resolve();
      await sending;
      expect(await silenceMs()).toBe(300);
      expect(await silenceMs()).toBe(0);
    },
  );

  test('is silent no shorter when a later answer demands less, and longer when it demands more', async () => {
    cluster.throttleMs = () => 300;
    await send([recordFor('t1')]);
    vi.advanceTimersByTime(100);
    cluster.throttleMs = () => 0;
    await send([recordFor('t2')]);
    cluster.throttleMs = () => 150;
    await send([recordFor('t2')]);
    expect(await silenceMs()).toBe(200);
    cluster.throttleMs = () => 20;
    await send([recordFor('t1')]);
    cluster.throttleMs = () => 40;
    await send([recordFor('t2')]);
    expect(await silenceMs()).toBe(40);
  });

  test('is silent although the same request fails at another server', async () => {
    cluster.throttleMs = () => 300;
    cluster.failure = ({ server }) => (server === 2 ? new Error('refused') : undefined);
    await failureOf(send([recordFor('t1'), recordFor('t2')]));
    expect(await silenceMs()).toBe(300);
  });

  test('rests until the time is over, and not afterwards', async () => {
    const { setTimeout: delayed } = globalThis;
    const order: string[] = [];
    cluster.throttleMs = () => 30;
    await send([recordFor('t1')]);
    const resting = producer.rest(forever).then(() => order.push('rested'));
    delayed(() => order.push('earlier'), 20);
    await resting;
    expect(order).toEqual(['earlier', 'rested']);
    vi.advanceTimersByTime(30);
    const before = timerCount();
    await producer.rest(forever);
    expect(timerCount()).toBe(before);
  });

  test('lets callers give up, and leaves no listener at their signals and no timer after its end', async () => {
    const unhandled = unhandledRejections();
    const before = timerCount();
    cluster.throttleMs = () => 3_600_000;
    await send([recordFor('t1')]);
    const caller = new AbortController();
    const waiting = Array.from({ length: 20 }, () => failureOf(producer.rest(caller.signal)));
    caller.abort(new Error('given up'));
    expect(new Set((await Promise.all(waiting)).map((error) => (error as Error).message))).toEqual(
      new Set(['given up']),
    );
    expect(await failureOf(producer.rest(caller.signal))).toMatchObject({ message: 'given up' });
    expect(getEventListeners(caller.signal, 'abort')).toEqual([]);
    const ended = failureOf(producer.rest(forever));
    await producer.end();
    expect(await ended).toBeInstanceOf(Error);
    expect(await unhandled()).toEqual([]);
    expect(timerCount()).toBe(before);
  });

  test('leaves no listener at a signal after it has rested', async () => {
    const { signal } = new AbortController();
    cluster.throttleMs = () => 1;
    for (let round = 0; round < 20; round++) {
      await send([recordFor('t1')]);
      await producer.rest(signal);
      vi.advanceTimersByTime(1);
    }
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });
});

/** How many timers the process has now. */
function timerCount(): number {
  return process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
}

async function countsOf(
  topics: readonly string[],
  asking = producer,
  known = metadata,
): Promise<ReadonlyMap<string, PartitionCount | undefined>> {
  await asking.describe(topics);
  return new Map(topics.map((topic) => [topic, known.countOf(topic)]));
}

async function countOf(topic: string): Promise<unknown> {
  return (await countsOf([topic])).get(topic);
}

function existOnly(...names: readonly string[]): void {
  cluster.describe = (topic) => (names.includes(topic) ? {} : { errorCode: 3, partitions: [] });
}

/** Which of two topics are asked for after some time. */
async function askedAfter(ms: number): Promise<readonly string[]> {
  vi.advanceTimersByTime(ms);
  cluster.metadata.mockClear();
  await countsOf(['t1', 't2']);
  return cluster.metadata.mock.calls.flatMap(([topics]) => topics);
}

const doesNotExist = (topic: string) => ({ kind: 'later', reason: `the topic ${topic} does not exist` });

describe('the partitions of a topic', () => {
  test('are those that the cluster has', async () => {
    expect(await countOf('t1')).toBe(1);
  });

  test.each([
    [248, true],
    [249, true],
    [250, false],
    [40_000, false],
  ])('are queried if its name has %i characters: %s', async (length, isAsked) => {
    const found = await countOf('x'.repeat(length));
    expect(found === 1).toBe(isAsked);
    expect(cluster.metadata.mock.calls.length > 0).toBe(isAsked);
    expect(JSON.stringify(found).includes(`${length} characters`)).toBe(!isAsked);
  });

  test('are known although one of them has no leader', async () => {
    const partitions = [
      { partitionIndex: 1, leaderId: -1 },
      { partitionIndex: 0, leaderId: 1 },
    ];
    cluster.describe = () => ({ partitions });
    expect(await countOf('t1')).toBe(2);
    expect(cluster.metadata).toHaveBeenCalledTimes(1);
    expect(await send([recordFor('t1')])).toHaveProperty('size', 1);
  });

  test('are known although another topic has none with a leader', async () => {
    cluster.describe = (topic) =>
      topic === 't2' ? { partitions: [{ partitionIndex: 0, leaderId: -1 }] } : {};
    const requests = await producer.send([recordFor('t1'), recordFor('t2')]);
    const answers = await Promise.all(requests.map((request) => request.answers));
    const all = new Map<string, unknown>(answers.flatMap((each) => [...each]));
    expect(all.get('t1:0')).toMatchObject({ errorCode: 0 });
    expect(all.get('t2:0')).toMatchObject({ message: 'Kafka names no leader of t2:0' });
  });

  test('are asked for in one request, which is not repeated for topics that are missing', async () => {
    const topics = Array.from({ length: 1_000 }, (_unused, index) => `t${index}`);
    existOnly(...topics.slice(0, 2));
    const counts = await countsOf(topics);
    expect(topics.slice(0, 2).map((topic) => counts.get(topic))).toEqual([1, 1]);
    for (const missing of topics.slice(2)) expect(counts.get(missing)).toEqual(doesNotExist(missing));
    await countsOf(topics);
    expect(cluster.metadata).toHaveBeenCalledTimes(1);
  });

  test('are asked for again after some time: sooner if the topic is missing', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    existOnly('t1');
    expect(await askedAfter(0)).toEqual(['t1', 't2']);
    expect(await askedAfter(999)).toEqual([]);
    expect(await askedAfter(1)).toEqual(['t2']);
    existOnly('t1', 't2');
    expect(await askedAfter(1_000)).toEqual(['t2']);
    expect(await countOf('t2')).toBe(1);
    expect(await askedAfter(2_999)).toEqual([]);
    expect(await askedAfter(1)).toEqual(['t1']);
  });

  test('are asked for again while a topic is unknown, and no other is written', async () => {
    existOnly();
    const counting = countOf('t1');
    await vi.waitUntil(() => cluster.metadata.mock.calls.length > 1);
    existOnly('t1');
    expect(await counting).toBe(1);
  });

  test('are not awaited a second time', async () => {
    existOnly();
    expect(await countOf('t1')).toEqual(doesNotExist('t1'));
    const calls = cluster.metadata.mock.calls.length;
    expect(calls).toBeGreaterThan(2);
    const other = new KafkaProducer(options, metadata, silent);
    await countsOf(['t1'], other);
    await countsOf(['t1'], other);
    expect(cluster.metadata).toHaveBeenCalledTimes(calls + 1);
    await other.end();
  });

  test('that is unknown so far are awaited if the server may create it', async () => {
    const known = new KafkaMetadata(true);
    const creating = new KafkaProducer({ ...options, autocreateTopics: true }, known, silent);
    existOnly();
    expect((await countsOf(['t1'], creating, known)).get('t1')).toEqual({
      kind: 'later',
      reason: 'the topic t1 has not been created so far',
    });
    await creating.end();
  });

  test('of Kafka itself are refused', async () => {
    cluster.describe = () => ({ isInternal: true });
    expect(await countOf('__consumer_offsets')).toMatchObject({ kind: 'refused' });
  });

  test('are refused or awaited by the error of the topic, and those of others are known', async () => {
    const kinds = new Map<number, unknown>();
    for (const { code } of Object.values(protocolErrors)) {
      if (code === 0) continue;
      cluster.describe = (topic) => (topic === 't1' ? { errorCode: code, partitions: [] } : {});
      metadata = new KafkaMetadata(false);
      const asking = new KafkaProducer(options, metadata, silent);
      const counts = await countsOf(['t1', 't2'], asking, metadata);
      expect(counts.get('t2')).toBe(1);
      kinds.set(code, (counts.get('t1') as { readonly kind: string }).kind);
      await asking.end();
    }
    const refused = [...kinds].filter(([, kind]) => kind !== 'later');
    expect(refused).toEqual([[17, 'refused']]);
  });

  test('are asked for once more after a lost connection, whose error counts in the end', async () => {
    cluster.metadata.mockImplementationOnce(() => {
      throw lostConnection();
    });
    expect(await countOf('t1')).toBe(1);
    cluster.metadata.mockImplementation(() => {
      throw lostConnection();
    });
    await expect(countOf('t2')).rejects.toMatchObject({ code: 'PLT_KFK_NETWORK' });
  });

  test('are asked for at the server that has answered last, also by the next producer', async () => {
    const other = new KafkaProducer(
      { ...options, bootstrapBrokers: [9, 1].map((port) => ({ host: 'kafka', port })) },
      metadata,
      silent,
    );
    cluster.metadata.mockImplementation((_topics, server) => {
      if (server === 9) throw new Error('silent');
    });
    await countsOf(['t1'], other);
    await countsOf(['t2'], other);
    await other.ping('t1');
    await countsOf(['t3']);
    expect(cluster.metadata.mock.calls.map(([, server]) => server)).toEqual([9, 1, 1, 1, 1]);
    await other.end();
  });
});

describe('a topic that was deleted and created again', () => {
  test('gets further messages, as every other one does', async () => {
    for (const topicId of ['one', 'two']) {
      cluster.describe = () => ({ topicId });
      await countsOf(['t1'], new KafkaProducer(options, metadata, silent));
      expect(await send([recordFor('t1'), recordFor('t2')])).toHaveProperty('size', 2);
    }
  });
});

describe('an answer of Kafka', () => {
  const codes = [0, ...finalCodes, 1, 3, 5, 7, 11];

  test('says that a batch is too large, or that a record is invalid, by its code', () => {
    const answers = codes.map((errorCode) => ({ errorCode, recordErrors: [] }));
    expect(answers.filter(isTooLarge).map(({ errorCode }) => errorCode)).toEqual([10, 18]);
    expect(answers.filter(isInvalid).map(({ errorCode }) => errorCode)).toEqual([87]);
  });

  test('has a reason for the blamed record, otherwise one for the batch, otherwise that of its code', () => {
    const recordErrors = [
      { batchIndex: 1, batchIndexErrorMessage: 'no schema' },
      { batchIndex: 2, batchIndexErrorMessage: null },
    ];
    const answer = { errorCode: 87, errorMessage: 'one is invalid', recordErrors };
    expect([0, 1, 2].map((index) => refusalOf(answer, index))).toEqual([
      'one is invalid',
      'no schema',
      'one is invalid',
    ]);
    expect(refusalOf({ errorCode: 29, recordErrors: [] }, 0)).toBe('Topic authorization failed.');
  });

  test('that fails in several ways becomes one error with the words of each, once', () => {
    const error = new MultipleErrors('failed', [
      new Error('refused by 1'),
      new MultipleErrors('failed', [new Error('refused by 2'), new Error('refused by 1')]),
      new Error('outer', { cause: new Error('reset') }),
    ]);
    expect(producer.worded(error)).toMatchObject({
      message: 'refused by 1 refused by 2 reset',
      cause: error,
    });
    const other = new Error('other');
    expect(producer.worded(other)).toBe(other);
  });
});
