import { protocolErrors } from '@platformatic/kafka';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';

import type { Broker } from '../src/index.js';
import { nextRequest, recordOf } from '../src/kafka-records.js';
import { kafka } from '../src/kafka.js';
import { messageFor } from './broker-suite.js';
import { PretendedKafka } from './pretended-kafka.js';

const forever = new AbortController().signal;
let server: PretendedKafka;
let broker: Broker;
beforeEach(async () => {
  server = await PretendedKafka.start();
  broker = kafka({ bootstrapServers: [server.address] });
});
afterEach(async () => {
  await broker.close();
  await server.stop();
});

/** Messages of these models, each with a body that says which one it is. */
function messagesOf(...models: readonly string[]) {
  const versions = new Map<string, number>();
  return models.map((model) => {
    const version = (versions.get(model) ?? 0) + 1;
    versions.set(model, version);
    return messageFor('topic', model, version, `${model}${version}`);
  });
}

async function publish(...models: readonly string[]) {
  const outcomes = await broker.publish(messagesOf(...models), forever);
  return outcomes.map(({ kind }) => kind);
}

/** The answers of Kafka by which a message is refused, if it answers with each of its codes about a topic that is named after it. */
async function refusals(): Promise<readonly string[]> {
  const codes = Object.values(protocolErrors).filter(({ code }) => code !== 0);
  const refusing = codes.map(async ({ id, code }) => {
    const outcomes = await broker.publish([messageFor(String(code), 'a', 1)], forever).catch(() => []);
    return outcomes[0]?.kind === 'refused' ? [id] : [];
  });
  return (await Promise.all(refusing)).flat().toSorted();
}

test('a message is refused only by answers that are about it, and waits after all others', async () => {
  server.judges = ({ topic }) => ({ errorCode: Number(topic) });
  expect(await refusals()).toEqual([
    'INVALID_RECORD',
    'INVALID_TOPIC_EXCEPTION',
    'MESSAGE_TOO_LARGE',
    'RECORD_LIST_TOO_LARGE',
  ]);
  server.judges = () => ({ errorCode: 0 });
  expect(await publish('a')).toEqual(['confirmed']);
});

test('a topic is refused only by answers that are about it, and waited for after all others', async () => {
  server.describes = Number;
  expect(await refusals()).toEqual(['INVALID_TOPIC_EXCEPTION']);
  server.describes = () => 0;
  expect(await publish('a')).toEqual(['confirmed']);
});

test('publishes what is before a record that Kafka blames, also of the same model', async () => {
  server.judges = ({ bodies }) => {
    const index = bodies.indexOf('a2');
    return index < 0 ? { errorCode: 0 } : { errorCode: 87, recordErrors: [[index, 'no schema']] };
  };
  expect(await publish('a', 'b', 'a', 'b', 'a')).toEqual([
    'confirmed',
    'confirmed',
    'refused',
    'confirmed',
    'held-back',
  ]);
  expect(server.taken.flatMap(({ bodies }) => bodies)).toEqual(['a1', 'b1', 'b2']);
});

test('only the record that Kafka does not take is refused, although Kafka names none', async () => {
  server.judges = ({ bodies }) => ({ errorCode: bodies.includes('a2') ? 87 : 0 });
  expect(await publish('a', 'b', 'a', 'b', 'a')).toEqual([
    'confirmed',
    'confirmed',
    'refused',
    'confirmed',
    'held-back',
  ]);
  expect(server.taken.flatMap(({ bodies }) => bodies).sort()).toEqual(['a1', 'b1', 'b2']);
});

test('goes on when a smaller batch in which it searches for an invalid record is too large as well', async () => {
  server.judges = ({ bodies }) => {
    if (bodies.length > 3 && bodies.length < 8) return { errorCode: 10 };
    return { errorCode: bodies.includes('m5') ? 87 : 0 };
  };
  const models = Array.from({ length: 20 }, () => 'm');
  const outcomes = await publish(...models);
  expect(outcomes).toEqual(
    models.map((_, index) => (index < 4 ? 'confirmed' : index === 4 ? 'refused' : 'held-back')),
  );
  expect(server.taken.flatMap(({ bodies }) => bodies)).toEqual(['m1', 'm2', 'm3', 'm4']);
});

function recordFor(topic: string, body = '{}') {
  return recordOf(messageFor(topic, topic, 1, body), topic, 1);
}

test('sends no more in one request than a server reads, unless one message has more', () => {
  const large = 'x'.repeat(6_000_000);
  const records = [recordFor('a', large), recordFor('b', large), recordFor('b'), recordFor('c')];
  const request = nextRequest(records, () => 1);
  expect(request.map(({ place }) => place)).toEqual(['a:0', 'c:0']);
});

test('publishes to a server that is older than the one which answers first, as in an upgrade', async () => {
  const older = await PretendedKafka.start();
  onTestFinished(() => older.stop());
  server.produceVersionMax = 11;
  server.leader = older;
  expect(await publish('a')).toEqual(['confirmed']);
  expect(older.taken).toHaveLength(1);
});

test('goes to another server when the last one that answered is silent, although the calls end before a request may', async () => {
  const other = await PretendedKafka.start();
  onTestFinished(() => other.stop());
  server.leader = other;
  const both = kafka({ bootstrapServers: [server.address, other.address] });
  onTestFinished(() => both.close());
  const publishBefore = (topic: string, ms: number) =>
    both.publish([messageFor(topic, 'a', 1)], AbortSignal.timeout(ms)).catch(() => []);
  expect(await publishBefore('first', 5_000)).toEqual([{ kind: 'confirmed' }]);
  server.isSilent = true;
  expect(await publishBefore('second', 100)).toEqual([]);
  await expect.poll(() => publishBefore('second', 500), { timeout: 5_000 }).toEqual([{ kind: 'confirmed' }]);
});

test('waits no longer than two seconds for a silent server, and then hardly, while it waits for one that takes long', async () => {
  const other = await PretendedKafka.start();
  onTestFinished(() => other.stop());
  server.leader = other;
  expect(await publish('a')).toEqual(['confirmed']);
  other.produceMs = 2_500;
  expect(await publish('a')).toEqual(['confirmed']);
  other.isSilent = true;
  const tookMs = async (kind: string): Promise<number> => {
    const begunMs = performance.now();
    expect(await publish('a')).toEqual([kind]);
    return performance.now() - begunMs;
  };
  expect(await tookMs('later')).toBeLessThan(2_000);
  expect(await tookMs('later')).toBeLessThan(1_000);
  other.isSilent = false;
  other.produceMs = 0;
  await expect.poll(() => publish('a'), { timeout: 15_000 }).toEqual(['confirmed']);
}, 30_000);

test.each([
  [600, 600],
  [700, 900],
  [700, 1_300],
  [300, 1_300],
])(
  'stores a message once, and says so, when it answers after %d ms, and confirms after %d ms',
  async (otherMs, produceMs) => {
    Object.assign(server, { otherMs, produceMs });
    expect(await publish('a')).toEqual(['confirmed']);
    expect(await publish('b')).toEqual(['confirmed']);
    expect(server.taken.map(({ bodies }) => bodies)).toEqual([['a1'], ['b1']]);
  },
  30_000,
);

test('a server that was slow before is waited for longer than a silent one', async () => {
  Object.assign(server, { otherMs: 1_800, produceMs: 1_800 });
  await expect.poll(() => publish('a').catch(() => []), { timeout: 15_000 }).toEqual(['confirmed']);
  expect(await publish('b')).toEqual(['confirmed']);
  expect(server.taken.map(({ bodies }) => bodies)).toEqual([['a1'], ['b1']]);
}, 30_000);

test('waits for a topic of which a server says first that it is missing, and then that nobody leads it', async () => {
  let askedCount = 0;
  server.describes = () => (askedCount++ === 0 ? 3 : 5);
  expect(await publish('a')).toEqual(['later']);
  server.describes = () => 0;
  expect(await publish('a')).toEqual(['confirmed']);
});

test('a missing topic is waited for, although asking for it takes longer than a request may', async () => {
  const impatient = kafka({ bootstrapServers: [server.address], timeoutMs: 300 });
  onTestFinished(() => impatient.close());
  await impatient.publish(messagesOf('a'), forever);
  server.describes = () => 3;
  expect(await impatient.publish([messageFor('missing', 'a', 1)], forever)).toMatchObject([
    { kind: 'later', of: 'target', reason: 'the topic missing does not exist' },
  ]);
});

test('tries larger batches again after a lower limit, which may have been raised since', async () => {
  const models = Array.from({ length: 40 }, (_, index) => `m${index}`);
  const messages = models.map((model) => messageFor('topic', model, 1, 'x'.repeat(10_000)));
  let recordsMax = 10;
  server.judges = ({ bodies }) => ({ errorCode: bodies.length > recordsMax ? 10 : 0 });
  await broker.publish(messages, forever);
  const largest = (): number => Math.max(...server.taken.splice(0).map(({ bodies }) => bodies.length));
  expect(largest()).toBeLessThanOrEqual(10);
  await broker.publish(messages, forever);
  expect(largest()).toBeLessThanOrEqual(10);
  recordsMax = Infinity;
  for (let round = 0; round < 200; round++) await broker.publish(messages, forever);
  expect(largest()).toBe(40);
});

describe('a server whose quota was exceeded', () => {
  const timeoutMs = 700;
  beforeEach(async () => {
    await broker.close();
    broker = kafka({ bootstrapServers: [server.address], timeoutMs });
    server.throttleMs = 1.5 * timeoutMs;
  });

  test('gets the next request when its silence is over, and everything once', async () => {
    const large = 'x'.repeat(700_000);
    const messages = [1, 2].map((version) => messageFor('topic', 'a', version, `${version}${large}`));
    expect(await broker.publish(messages, forever)).toEqual(messages.map(() => ({ kind: 'confirmed' })));
    expect(await publish('b')).toEqual(['confirmed']);
    expect(server.taken.map(({ bodies }) => bodies.map(([start]) => start))).toEqual([['1'], ['2'], ['b']]);
    expect(new Set(server.taken.map(({ producerId }) => producerId)).size).toBe(1);
  });

  test('keeps neither a ping waiting, nor a caller who gives up, nor the end', async () => {
    server.throttleMs = 3_600_000;
    expect(await publish('a')).toEqual(['confirmed']);
    await broker.ping();
    const givenUp = new AbortController();
    const waiting = broker.publish(messagesOf('a'), givenUp.signal);
    givenUp.abort(new Error('too late'));
    await expect(waiting).rejects.toThrow('too late');
    expect(await publish('a')).toEqual(['confirmed']);
    const ended = publish('a').catch((error: unknown) => error);
    await broker.close();
    // Long before the server's silence is over.
    const deadline = AbortSignal.timeout(5_000);
    const late = new Promise((resolve) => deadline.addEventListener('abort', () => resolve('still waiting')));
    expect(await Promise.race([ended, late])).toBeInstanceOf(Error);
  });
});
