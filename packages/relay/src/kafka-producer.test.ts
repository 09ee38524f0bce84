import {
  MultipleErrors,
  Producer,
  ProtocolError,
  ResponseError,
  UserError,
  protocolErrors,
} from '@platformatic/kafka';
import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { ScriptedCluster, lostConnection } from '../test/scripted-cluster.js';
import { unhandledRejections } from '../test/unhandled.js';
import { KafkaMetadata } from './kafka-metadata.js';
import { type KafkaAnswer, KafkaProducer, isInvalid, isTooLarge, refusalOf } from './kafka-producer.js';
import { type KafkaRecord, recordOf } from './kafka-records.js';

const forever = new AbortController().signal;
const options = { clientId: 'test', bootstrapBrokers: ['127.0.0.1:1'], timeout: 10_000 };
/** The answers after which a batch is not sent again as it is. */
const finalCodes = [10, 17, 18, 29, 87];

let cluster: ScriptedCluster;
let producer: KafkaProducer;
beforeEach(() => {
  cluster = new ScriptedCluster();
  producer = new KafkaProducer(options);
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
    expect(cluster.identities).toHaveBeenCalledTimes(1);
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
    cluster.metadata.mockImplementation((async () => ({
      topics: new Map(['t1', 't3'].map((topic) => [topic, { partitions: [{ leader: 1 }] }])),
      brokers: new Map([[1, { host: 'kafka', port: 1 }]]),
    })) as never);
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
    cluster.metadata.mockImplementation((async () => ({
      topics: new Map([['t1', { partitions: [{ leader: -1 }] }]]),
      brokers: new Map(),
    })) as never);
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

/** The partition count of a topic, from a producer that compares it with no other's. */
async function countOf(topic: string, asking = producer): Promise<unknown> {
  return (await asking.partitionCounts([topic], () => 0)).get(topic);
}

/** The client throws for the first topic that is unknown, and says nothing of others. */
function existOnly(...names: readonly string[]): void {
  cluster.metadata.mockImplementation(async ({ topics = [] }) => {
    const unknown = topics.find((topic) => !names.includes(topic));
    if (unknown !== undefined) throw new UserError(`Unknown topic ${unknown}.`);
    return {
      topics: new Map(topics.map((topic) => [topic, { partitionsCount: 1, partitions: [{ leader: 1 }] }])),
      brokers: new Map([[1, { host: 'kafka', port: 1 }]]),
    } as never;
  });
}

const partition = { errorCode: 0, leaderEpoch: 0, replicaNodes: [], isrNodes: [], offlineReplicas: [] };

/** An answer of a server about topics, after which the client throws. */
function answeredWith(...topics: readonly object[]): Error {
  const response = { brokers: [{ nodeId: 1, host: 'kafka', port: 1, rack: null }], topics };
  const error = new ResponseError(3, 12, { '/topics/0/partitions/0': [5, null] }, response);
  return new MultipleErrors('failed', [new Error('first'), error]);
}

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

  test('are known although one of them has no leader, after which the client throws', async () => {
    const partitions = [
      { ...partition, errorCode: 5, partitionIndex: 1, leaderId: -1 },
      { ...partition, partitionIndex: 0, leaderId: 1 },
    ];
    cluster.metadata.mockRejectedValue(answeredWith({ errorCode: 0, name: 't1', partitions }));
    expect(await countOf('t1')).toBe(2);
    expect(cluster.metadata).toHaveBeenCalledTimes(1);
    expect(await send([recordFor('t1')])).toHaveProperty('size', 1);
  });

  test('are known although the answer about another topic is an error without them', async () => {
    const led = (name: string) => ({
      errorCode: 0,
      name,
      partitions: [{ ...partition, partitionIndex: 0, leaderId: 1 }],
    });
    const leaderless = {
      errorCode: 0,
      name: 't2',
      partitions: [{ ...partition, errorCode: 72, partitionIndex: 0, leaderId: -1 }],
    };
    // The client asks only for what it did not know before.
    cluster.metadata.mockImplementation(async ({ forceUpdate = false }) => {
      throw forceUpdate ? answeredWith(led('t1'), leaderless) : answeredWith(leaderless);
    });
    const requests = await producer.send([recordFor('t1'), recordFor('t2')]);
    const answers = await Promise.all(requests.map((request) => request.answers));
    const all = new Map<string, unknown>(answers.flatMap((each) => [...each]));
    expect(all.get('t1:0')).toMatchObject({ errorCode: 0 });
    expect(all.get('t2:0')).toMatchObject({ message: 'Kafka names no leader of t2:0' });
  });

  test('are asked for together, and again only for topics that are missing', async () => {
    const topics = Array.from({ length: 64 }, (_unused, index) => `t${index}`);
    existOnly(...topics.slice(0, 62));
    const counts = await producer.partitionCounts(topics, () => 0);
    expect(topics.slice(0, 62).map((topic) => counts.get(topic))).toEqual(topics.slice(0, 62).map(() => 1));
    for (const missing of topics.slice(62))
      expect(counts.get(missing)).toEqual({ kind: 'later', reason: `the topic ${missing} does not exist` });
    // Halves down to the two, and these again.
    expect(cluster.metadata.mock.calls.length).toBeLessThan(40);
    cluster.metadata.mockClear();
    await producer.partitionCounts(topics.slice(0, 62), () => 0);
    expect(cluster.metadata).toHaveBeenCalledTimes(1);
  });

  test('are asked for again while a topic is unknown', async () => {
    existOnly();
    const counting = countOf('t1');
    await vi.waitUntil(() => cluster.metadata.mock.calls.length > 1);
    existOnly('t1');
    expect(await counting).toBe(1);
  });

  test('that is unknown so far are awaited if the server may create it', async () => {
    const creating = new KafkaProducer({ ...options, autocreateTopics: true });
    existOnly();
    expect(await countOf('t1', creating)).toEqual({
      kind: 'later',
      reason: 'the topic t1 has not been created so far',
    });
    await creating.end();
  });

  test('of Kafka itself are refused', async () => {
    cluster.metadata.mockResolvedValue({ topics: new Map([['__consumer_offsets', undefined]]) } as never);
    expect(await countOf('__consumer_offsets')).toMatchObject({ kind: 'refused' });
  });

  test('are refused or awaited by the error of the topic, and those of others are known', async () => {
    const kinds = new Map<number, unknown>();
    for (const { code } of Object.values(protocolErrors)) {
      if (code === 0) continue;
      const well = {
        errorCode: 0,
        name: 't2',
        partitions: [{ ...partition, partitionIndex: 0, leaderId: 1 }],
      };
      const bad = { errorCode: code, name: 't1', partitions: [] };
      cluster.metadata.mockRejectedValue(answeredWith(bad, well));
      const counts = await producer.partitionCounts(['t1', 't2'], () => 0);
      expect(counts.get('t2')).toBe(1);
      kinds.set(code, (counts.get('t1') as { readonly kind: string }).kind);
    }
    const refused = [...kinds].filter(([, kind]) => kind !== 'later');
    expect(refused).toEqual([[17, 'refused']]);
  });

  test('are asked for once more after a lost connection, whose last error counts', async () => {
    cluster.metadata.mockRejectedValueOnce(lostConnection());
    expect(await countOf('t1')).toBe(1);
    cluster.metadata.mockRejectedValue(lostConnection());
    await expect(countOf('t1')).rejects.toMatchObject({ code: 'PLT_KFK_NETWORK' });
  });
});

/** All topics have this id from now on. */
function describeWith(id: string): void {
  cluster.metadata.mockImplementation(async ({ topics = [] }) => {
    const described = { id, partitionsCount: 1, partitions: [{ leader: 1 }] };
    return {
      topics: new Map(topics.map((topic) => [topic, described])),
      brokers: new Map([[1, { host: 'kafka', port: 1 }]]),
    } as never;
  });
}

describe('what a producer knows of topics', () => {
  let connectionCount: number;
  let client: Producer;
  let topics: KafkaMetadata;
  beforeEach(() => {
    connectionCount = 1;
    client = new Producer({ clientId: 'test', bootstrapBrokers: ['127.0.0.1:1'] });
    topics = new KafkaMetadata(client, false, () => connectionCount);
  });
  afterEach(() => client.close());

  test('is asked for again after each new connection, and not before', async () => {
    describeWith('one');
    await topics.describe(['t1', 't2']);
    await topics.verify(['t1']);
    expect(cluster.metadata).toHaveBeenCalledTimes(1);
    connectionCount++;
    describeWith('two');
    await expect(topics.verify(['t1'])).rejects.toThrow('created again');
    await expect(topics.describe(['t2'])).rejects.toThrow('created again');
  });

  test('is not taken for certain if a server says nothing else of a topic', async () => {
    describeWith('one');
    await topics.describe(['t1']);
    connectionCount++;
    cluster.metadata.mockRejectedValue(answeredWith({ errorCode: 5, name: 't1', partitions: [] }));
    await expect(topics.verify(['t1'])).rejects.toThrow('leader');
  });

  test('is asked for once more if the client has forgotten it meanwhile', async () => {
    describeWith('one');
    await topics.describe(['t1']);
    cluster.metadata.mockResolvedValueOnce({
      topics: new Map([['t1', undefined]]),
      brokers: new Map(),
    } as never);
    expect((await topics.partitionCounts(['t1'], () => 0)).get('t1')).toBe(1);
  });
});

describe('a topic that was deleted and created again', () => {
  test('gets nothing from a producer whose sequence numbers belong to the old one', async () => {
    describeWith('one');
    await send([recordFor('t1')]);
    describeWith('two');
    // Several requests of one call may find that out.
    for (const version of [2, 3])
      await expect(producer.send([recordFor('t1', version)])).rejects.toThrow('created again');
    expect(cluster.requests).toHaveLength(1);
  });

  test('is not meant by a server that gives topics no ids', async () => {
    for (const id of ['one', '00000000-0000-0000-0000-000000000000', 'one']) {
      describeWith(id);
      await send([recordFor('t1')]);
    }
    expect(cluster.requests).toHaveLength(3);
  });

  test('gets nothing from it either if that shows only after a connection was lost', async () => {
    describeWith('one');
    await send([recordFor('t1')]);
    cluster.failure = () => {
      describeWith('two');
      return lostConnection();
    };
    expect(await failureOf(send([recordFor('t1', 2)]))).toMatchObject({
      message: expect.stringContaining('created again'),
    });
    expect(cluster.requests).toHaveLength(2);
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
