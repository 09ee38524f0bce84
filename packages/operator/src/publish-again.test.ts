import { BrokerUnavailableError, type DeliverableEvent } from '@framework/core/adapter';
import { beforeEach, describe, expect, test } from 'vitest';

import { MemoryDatabases } from '../test/fixtures/memory-databases.js';

const signed = { by: 'olivia', reason: 'the consumer has lost its database' };
const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_each, index) => index + 1);

/** What was published again, and with which marker. */
let published: { readonly event: DeliverableEvent; readonly marker: string }[];
/** What becomes of an event. */
let outcomeOf: (event: DeliverableEvent) => { readonly kind: string; readonly reason?: string };
/** Whether the relay's filter wants an event. */
let wants: (event: DeliverableEvent) => boolean;
/** Called before each call of the relay, with the number of calls before it. */
let beforeCall: (count: number) => Promise<void>;
let all: MemoryDatabases;

beforeEach(async () => {
  published = [];
  outcomeOf = () => ({ kind: 'confirmed' });
  wants = () => true;
  beforeCall = async () => undefined;
  let callCount = 0;
  const relay = {
    name: 'to-broker',
    aliases: ['to-old-broker'],
    wants: (event: DeliverableEvent) => wants(event),
    publishAgain: async (events: readonly DeliverableEvent[], { marker }: { readonly marker: string }) => {
      await beforeCall(callCount++);
      return events.map((event) => {
        published.push({ event, marker });
        return outcomeOf(event);
      });
    },
  };
  const renamed = { ...relay, name: 'new', aliases: ['to-third', 'to-former'] };
  all = new MemoryDatabases({ relays: [relay, renamed, { name: 'elsewhere' }] });
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

  test.each([{ modelId: 'a' }, { type: 'ThingChangedEvent' }])(
    'takes all that was there before, whatever is committed meanwhile, by %o',
    async (search) => {
      await all.first.write('a', upTo(250));
      all.first.pass('to-broker');
      beforeCall = async () => {
        await all.first.write('a', [251, 252]);
        all.first.pass('to-broker');
        beforeCall = async () => undefined;
      };
      const answer = await all.operator.publishAgain(search, { relay: 'to-broker', ...signed });
      expect(answer).toMatchObject({ count: 250, failures: [] });
      expect(arrivals()).toEqual(upTo(250).map((version) => `a${version}`));
    },
  );

  test('takes each model in the order of its versions, even where the log has another one', async () => {
    await all.first.write('a', [3]);
    await all.first.write('b', [1]);
    await all.first.write('a', [1]);
    await all.first.writeAtOnce('a', [2, 2]);
    await all.first.write('a', [1], { modelName: 'Other' });
    all.first.pass('to-broker');
    const byType = { type: 'ThingChangedEvent' };
    await all.operator.publishAgain(byType, { relay: 'to-broker', ...signed });
    expect(
      published.map(
        ({ event }) => `${event.modelName} ${event.modelId} ${event.modelVersion} ${event.ordinal}`,
      ),
    ).toEqual(['Thing a 1 0', 'Thing b 1 0', 'Thing a 2 0', 'Thing a 2 1', 'Thing a 3 0', 'Other a 1 0']);
  });

  test('loads as many events at a time as fit into the memory', async () => {
    await all.first.write('a', upTo(101));
    await all.first.write('large', upTo(5), { payload: { text: 'x'.repeat(5_000_000) } });
    all.first.pass('to-broker');
    const sizes: number[] = [];
    const { log } = all.first.delivery.store;
    const load = log.load.bind(log);
    log.load = (events) => {
      sizes.push(events.length);
      return load(events);
    };
    wants = ({ payload }) => payload !== undefined;
    const every = { since: new Date(0) };
    await all.operator.publishAgain(every, { relay: 'to-broker', ...signed });
    expect(arrivals()).toHaveLength(106);
    // First only the large ones, for the filter of the relay.
    expect(sizes).toEqual([3, 2, 100, 4, 2]);
  });

  test('ends clearly with an event that retention has removed meanwhile', async () => {
    await all.first.write('a', upTo(150));
    all.first.pass('to-broker');
    beforeCall = async () => void (all.first.log as DeliverableEvent[]).splice(120, 1);
    const answer = await all.operator.publishAgain({ modelId: 'a' }, { relay: 'to-broker', ...signed });
    const detail = expect.stringMatching(
      /no longer in the log.*100 events were published.*repeat/i,
    ) as string;
    expect(answer).toMatchObject({ count: 100, failures: [{ code: 'operator-request', detail }] });
  });

  test('finds a relay by a former name although it has not run under its new one', async () => {
    await all.first.register('to-former');
    await all.first.write('a', [1]);
    all.first.pass('to-former');
    for (const relay of ['new', 'to-former', 'to-third']) {
      const options = { relay, ...signed, dryRun: true };
      expect(await all.operator.publishAgain({ modelId: 'a' }, options)).toMatchObject({ count: 1 });
    }
  });

  test('counts and limits only what the filter of the relay wants, also of large events', async () => {
    await all.first.write('a', upTo(6));
    await all.first.write('b', [1, 2], { payload: { text: 'x'.repeat(70_000), wanted: true } });
    all.first.pass('to-broker');
    wants = ({ payload, modelVersion }) =>
      (payload as { readonly wanted?: boolean }).wanted === true || modelVersion === 5;
    const every = { since: new Date(0) };
    const options = { relay: 'to-broker', limit: 3, ...signed };
    expect(await all.operator.publishAgain(every, { ...options, dryRun: true })).toMatchObject({
      count: 3,
      mayBeMore: false,
    });
    expect(await all.operator.publishAgain(every, options)).toMatchObject({ count: 3, failures: [] });
    expect(arrivals()).toEqual(['a5', 'b1', 'b2']);
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

  test.each([
    ['refused', 'too large', 'too large'],
    ['later', 'connect ECONNREFUSED 10.0.0.7:4222', 'connect ECONNREFUSED …'],
    ['later', 'getaddrinfo ENOTFOUND broker.internal', 'getaddrinfo ENOTFOUND …'],
    ['later', 'POST https://user:pw@host/path answered 503', 'POST … answered 503'],
    ['later', 'connect ETIMEDOUT fd00::7:4222, then 2001:db8::1', 'connect ETIMEDOUT …, then …'],
    ['later', 'no leader at broker-1.internal:9092\0', 'no leader at …'],
  ])('names the event that is %s, and the reason without its addresses (%#)', async (kind, reason, shown) => {
    const [, second = ''] = await all.first.write('a', [1, 2, 3]);
    all.first.pass('to-broker');
    outcomeOf = ({ modelVersion }) =>
      modelVersion === 1
        ? { kind: 'confirmed' }
        : modelVersion === 2
          ? { kind, reason }
          : { kind: 'held-back' };
    const answer = await all.operator.publishAgain({ modelId: 'a' }, { relay: 'to-broker', ...signed });
    const detail = answer.failures[0]?.detail;
    expect(detail).toContain(`event ${second}`);
    expect(detail?.endsWith(`: ${shown}`)).toBe(true);
    expect((await all.operator.audit()).items[0]?.ended).toMatchObject({
      outcome: 'failed',
      errorText: detail,
    });
  });

  test('names the first event that was sent when the broker cannot be reached, without its address', async () => {
    const [first = ''] = await all.first.write('a', [1, 2]);
    all.first.pass('to-broker');
    beforeCall = async () => {
      const cause = new Error('connect ECONNREFUSED 127.0.0.1:4222');
      throw new BrokerUnavailableError('to-broker', { cause });
    };
    const { failures } = await all.operator.publishAgain({ modelId: 'a' }, { relay: 'to-broker', ...signed });
    expect(failures).toMatchObject([{ code: 'broker-unavailable' }]);
    expect(failures[0]?.detail).toContain(first);
    expect(failures[0]?.detail).toContain('connect ECONNREFUSED …');
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
    ['a date', { since: new Date(Number.NaN) }, 'to-broker', {}, 'since is not a date'],
    ['a date that exists', { until: new Date(-8.64e15) }, 'to-broker', {}, 'until is not a date'],
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
