import type { DeliverableEvent } from '@framework/core/adapter';
import { beforeEach, describe, expect, test } from 'vitest';

import { MemoryDatabases } from '../test/fixtures/memory-databases.js';

const signed = { by: 'olivia', reason: 'the consumer has lost its database' };
const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_each, index) => index + 1);

/** What was published again, and with which marker. */
let published: { readonly event: DeliverableEvent; readonly marker: string }[];
/** What becomes of an event. */
let outcomeOf: (event: DeliverableEvent) => { readonly kind: string; readonly reason?: string };
let all: MemoryDatabases;

beforeEach(async () => {
  published = [];
  outcomeOf = () => ({ kind: 'confirmed' });
  const relay = {
    name: 'to-broker',
    aliases: ['to-old-broker'],
    publishAgain: async (events: readonly DeliverableEvent[], { marker }: { readonly marker: string }) =>
      events.map((event) => {
        published.push({ event, marker });
        return outcomeOf(event);
      }),
  };
  all = new MemoryDatabases({ relays: [relay, { name: 'elsewhere' }] });
  for (const database of [all.first, all.second]) await database.register('to-broker');
});

/** The models and versions in the order in which they were published. */
function arrivals(): readonly string[] {
  return published.map(({ event }) => `${event.modelId}${event.modelVersion}`);
}

describe('publishing again', () => {
  test('takes one model in the order of its versions, over several pages, and is recorded', async () => {
    await all.first.write('a', upTo(250));
    await all.first.write('b', [1]);
    all.first.pass('to-broker');
    const answer = await all.operator.publishAgain({ modelId: 'a' }, { relay: 'to-broker', ...signed });
    expect(answer).toMatchObject({ count: 250, mayBeMore: false, failures: [] });
    expect(arrivals()).toEqual(upTo(250).map((version) => `a${version}`));
    expect(new Set(published.map(({ marker }) => marker))).toEqual(new Set([answer.changeId]));
    expect(all.first.audit).toEqual([['publish-again', 'done']]);
    expect((await all.operator.audit()).items[0]).toMatchObject({
      target: { relay: 'to-broker', filter: { modelId: 'a' } },
      ended: { count: 250 },
    });
  });

  test('takes a type or a time from all databases, and only what the relay has passed', async () => {
    await all.first.write('a', [1], { type: 'OtherEvent' });
    await all.first.write('a', [2, 3]);
    await all.second.write('b', [1]);
    all.first.pass('to-broker');
    all.second.pass('to-broker');
    await all.second.write('b', [2]);
    const byType = { type: 'ThingChangedEvent' };
    const options = { relay: 'to-old-broker', ...signed };
    expect(await all.operator.publishAgain(byType, { ...options, dryRun: true })).toMatchObject({ count: 3 });
    expect(published).toEqual([]);
    await all.operator.publishAgain(byType, options);
    expect(arrivals().toSorted()).toEqual(['a2', 'a3', 'b1']);
    published = [];
    await all.operator.publishAgain({ since: new Date(0), shard: '0/0' }, options);
    expect(arrivals()).toEqual(['a1', 'a2', 'a3']);
  });

  test('leaves out a model that is blocked for the relay', async () => {
    const [blocked = ''] = await all.first.write('a', [1, 2]);
    await all.first.write('b', [1]);
    all.first.pass('to-broker');
    await all.first.kill('to-broker', [blocked], 'too large');
    await all.operator.publishAgain({ since: new Date(0) }, { relay: 'to-broker', ...signed });
    expect(arrivals()).toEqual(['b1']);
  });

  test('reads the payloads that lists leave out', async () => {
    const text = 'x'.repeat(70_000);
    await all.first.write('a', [1], { payload: { text } });
    all.first.pass('to-broker');
    await all.operator.publishAgain({ modelId: 'a' }, { relay: 'to-broker', ...signed });
    expect(published[0]?.event.payload).toEqual({ text });
  });

  test.each([
    ['refused', 'message-refused'],
    ['later', 'broker-unavailable'],
    ['held-back', 'broker-unavailable'],
  ])('ends with a message that is %s, and says how many were published', async (kind, code) => {
    await all.first.write('a', upTo(150));
    all.first.pass('to-broker');
    outcomeOf = ({ modelVersion }) =>
      modelVersion === 120
        ? { kind, reason: 'no' }
        : { kind: modelVersion > 120 ? 'held-back' : 'confirmed' };
    const answer = await all.operator.publishAgain({ modelId: 'a' }, { relay: 'to-broker', ...signed });
    expect(answer).toMatchObject({ count: 119, failures: [{ shards: ['0/0'], code }] });
    expect(all.first.audit).toEqual([['publish-again', 'failed']]);
  });

  test('counts nothing for what the filter of the relay leaves out', async () => {
    await all.first.write('a', upTo(3));
    all.first.pass('to-broker');
    outcomeOf = ({ modelVersion }) => ({ kind: modelVersion === 2 ? 'left-out' : 'confirmed' });
    const answer = await all.operator.publishAgain({ modelId: 'a' }, { relay: 'to-broker', ...signed });
    expect(answer).toMatchObject({ count: 2, failures: [] });
  });

  test('publishes nothing of a database in which more events match than the limit', async () => {
    await all.first.write('a', upTo(11));
    await all.second.write('b', upTo(10));
    for (const database of [all.first, all.second]) database.pass('to-broker');
    const options = { relay: 'to-broker', limit: 10, ...signed };
    const every = { since: new Date(0) };
    expect(await all.operator.publishAgain(every, { ...options, dryRun: true })).toMatchObject({
      count: 21,
      mayBeMore: true,
    });
    expect(await all.operator.publishAgain(every, options)).toMatchObject({
      count: 10,
      failures: [
        {
          shards: ['0/0'],
          code: 'operator-request',
          detail: expect.stringContaining('More than 10') as string,
        },
      ],
    });
    expect(arrivals()).toEqual(upTo(10).map((version) => `b${version}`));
  });

  test.each([
    ['a filter', {}, 'to-broker', {}, 'Without a filter'],
    [
      'a relay of the configuration',
      { modelId: 'a' },
      'nobody',
      {},
      'There is no relay nobody here: name one',
    ],
    ['a relay with a broker', { modelId: 'a' }, 'elsewhere', {}, 'There is no relay elsewhere here'],
    ['text that can be stored', { modelId: 'a\0' }, 'to-broker', {}, 'no database can store'],
    ['a whole limit', { modelId: 'a' }, 'to-broker', { limit: 1.5 }, 'The limit is 1.5'],
    ['a reason', { modelId: 'a' }, 'to-broker', { reason: '' }, 'reason is missing'],
    ['a known shard', { shard: '9/9', modelId: 'a' }, 'to-broker', {}, 'shard 9/9 is not configured'],
  ])('needs %s', async (_what, search, relay, more, message) => {
    const refused = async () => all.operator.publishAgain(search, { relay, ...signed, ...more });
    await expect(refused()).rejects.toThrow(message);
    expect(published).toEqual([]);
    expect(all.first.audit).toEqual([]);
  });

  test('skips a database that is down, and names it', async () => {
    await all.first.write('a', [1]);
    all.first.pass('to-broker');
    all.takeDown(1);
    const answer = await all.operator.publishAgain({ since: new Date(0) }, { relay: 'to-broker', ...signed });
    expect(answer).toMatchObject({ count: 1, failures: [{ shards: ['1/0'], code: 'shard-unavailable' }] });
    all.recover();
  });
});
