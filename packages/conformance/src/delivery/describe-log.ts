import { type Cursor, slotOf } from '@framework/core/adapter';
import { expect, test, vi } from 'vitest';

import { at } from '../suite-context.js';
import {
  type ConcurrentDeliveryFixture,
  type DeliveryContext,
  contentOf,
  idsOf,
  never,
} from './delivery-context.js';

/**
 * The slots of some models in a log of 16 slots. They never change: every version of the framework must read what another one has
 * written.
 */
const slotsOf16 = [
  ['', 9],
  ['a', 0],
  ['00000000-0000-0000-0000-000000000000', 6],
  ['01a20098-e5a5-7000-8000-c4b13c4486dc', 4],
  ['ada/Übung', 4],
  ['𝒳', 2],
] as const;

/** Registers tests of how delivery reads the log of a database in which transactions follow one another. */
export function describeLog(context: DeliveryContext): void {
  test.each(slotsOf16)('The model %j is always in the same slot: %i of 16', (modelId, slot) => {
    expect(slotOf(modelId, 16)).toBe(slot);
  });

  test('The database stores the slot of every event, and reads events by it', async () => {
    const { store, slots } = context;
    for (const [modelId] of slotsOf16) await context.write(modelId, 1);
    for (let model = 0; model < 64; model++) await context.write(`model-${model}`, 1);
    const written = await context.logged();
    expect(written.map(({ slot }) => slot)).toEqual(
      written.map(({ modelId }) => slotOf(modelId, store.slotCount)),
    );
    const beginning = await context.beginning();
    for (const slot of slots) {
      const { events } = await store.log.read([slot], beginning, 1_000);
      expect(idsOf(events)).toEqual(idsOf(written.filter((event) => event.slot === slot)));
    }
  });

  test.each([1, 3, 7, 1_000])(
    'A backlog is read in batches of about %i, without duplicates',
    async (limit) => {
      const written: string[] = [];
      for (let modelVersion = 1; modelVersion <= 20; modelVersion++) {
        const models = ['a', 'b', 'c'].map((modelId) => ({ modelId, modelVersion }));
        written.push(...(await context.writeAtOnce(...models)));
      }
      const { events, cursor } = await context.readOn(await context.beginning(), limit);
      expect(idsOf(events)).toEqual(written);
      expect((await context.readOn(cursor, limit)).events).toEqual([]);
      const later = await context.write('a', 21);
      expect(idsOf((await context.readOn(cursor, limit)).events)).toEqual(later);
    },
  );

  test('A cursor that is saved within a large transaction loses nothing of it', async () => {
    const { store } = context;
    const leases = await context.holdAll();
    const ids = await context.writeAtOnce(
      ...[1, 2, 3].map((modelVersion) => ({ modelId: 'large', modelVersion })),
    );
    const large = slotOf('large', store.slotCount);
    const { next, partial } = await store.log.read([large], await context.beginning(), 2);
    const ofMine = leases.filter(({ handler, slot }) => handler === 'notify' && slot === large);
    expect(await store.cursors.save([{ ...at(ofMine, 0), cursor: next }])).toEqual([]);
    const loaded = (await store.cursors.load([large])).filter(({ handler }) => handler === 'notify');
    const { events } = await context.readOn(at(loaded, 0).cursor, 10);
    expect(idsOf(events)).toEqual(partial === true ? ids : ids.slice(2));
  });

  test('An action without events is never delivered, and no handler lags because of it', async () => {
    await context.register('notify');
    await context.writeAtOnce();
    expect(await context.logged()).toEqual([]);
    expect(await context.store.cursors.lag()).toMatchObject([{ handler: 'notify', pendingCount: 0 }]);
  });

  test('A large event is read without payload and params, and loaded whole, even when it has failed', async () => {
    const { store, slots } = context;
    const text = 'x'.repeat(100_000);
    await context.holdAll();
    await context.writeAtOnce({ modelId: 'a', modelVersion: 1, payload: JSON.stringify({ text }) });
    await context.write('a', 2);
    const { events } = await store.log.read(slots, await context.beginning(), 10, 10_000);
    const [large, small] = [at(events, 0), at(events, 1)];
    expect(large).toMatchObject({ omitted: true, modelVersion: 1 });
    expect(large.payload ?? undefined).toBeUndefined();
    expect(large.bytes).toBeGreaterThan(100_000);
    expect(small.omitted ?? false).toBe(false);
    expect(await store.log.load([small, large])).toMatchObject([
      { id: small.id, payload: {} },
      { id: large.id, payload: { text }, actionParams: {}, createdDate: large.createdDate },
    ]);

    expect(JSON.parse(JSON.stringify(large))).not.toHaveProperty('payload');
    const [cut] = (await store.log.read(slots, await context.beginning(), 1, 10_000)).events;
    expect(cut).toMatchObject({ id: large.id, omitted: true });

    await context.fail({ event: large });
    const head = at(await store.blocked.dueHeads(context.places(), 1, { bytesMax: 10_000 }), 0);
    const read = at(await store.blocked.read([head], 2, 10_000), 0);
    for (const event of [head.event, read[0]]) {
      expect(event).toMatchObject({ id: large.id, omitted: true });
      expect(event?.payload ?? undefined).toBeUndefined();
      expect(await store.log.load(event === undefined ? [] : [event])).toMatchObject([{ payload: { text } }]);
    }
    expect(read[1]).toMatchObject({ id: small.id, payload: {} });
    expect(await context.head()).toMatchObject({ event: { payload: { text } } });
    await context.fixture.emptyLog();
    await expect(store.log.load([small])).rejects.toMatchObject({ code: 'invariant-violation' });
  });

  test('Headers that are large themselves are left out as well, and loaded with the rest', async () => {
    const { store, slots } = context;
    await context.holdAll();
    const [small, large] = [{ trace: 'one' }, { baggage: 'x'.repeat(20_000) }];
    const payload = JSON.stringify({ text: 'x'.repeat(20_000) });
    await context.writeWith(JSON.stringify(small), { modelId: 'a', modelVersion: 1, payload });
    await context.writeWith(JSON.stringify(large), { modelId: 'b', modelVersion: 1 });
    const { events } = await store.log.read(slots, await context.beginning(), 10, 10_000);
    expect(events).toMatchObject([{ omitted: true }, { omitted: true }]);
    expect(events.map(({ headers }) => headers)).toEqual([small, {}]);
    const loaded = await store.log.load(events);
    expect(loaded.map(({ headers }) => headers)).toEqual([small, large]);

    await context.fail(...events.map((event) => ({ event })));
    const heads = await store.blocked.dueHeads(context.places(), 10, { bytesMax: 10_000 });
    const failed = heads
      .flatMap(({ event }) => event ?? [])
      .toSorted((one, other) => (one.modelId < other.modelId ? -1 : 1));
    expect(failed.map(({ headers }) => headers)).toEqual([small, {}]);
    expect((await store.log.load(failed)).map(({ headers }) => headers)).toEqual([small, large]);
  });

  test('An event is found by its id, and nothing is found by any other text', async () => {
    const [event] = await context.holdWith('a', 1);
    expect(await context.store.log.find(event.id)).toMatchObject(contentOf(event));
    for (const none of ['00000000-0000-7000-8000-000000000000', 'no id', ''])
      expect(await context.store.log.find(none)).toBeUndefined();
  });

  test('A notification reaches a listener until the listener is removed', async () => {
    const { notifications } = context.store;
    const onNotification = vi.fn<() => void>();
    const stop = await notifications.listen(onNotification);
    // The first call may only mean that notifications could have been missed until then.
    for (let call = 1; call <= 2; call++) {
      onNotification.mockClear();
      await vi.waitFor(async () => {
        await notifications.notify();
        expect(onNotification).toHaveBeenCalled();
      }, 30_000);
    }
    await stop();
    onNotification.mockClear();
    await notifications.notify();
    expect(onNotification).not.toHaveBeenCalled();
  });

  test('A partition that a cursor has not passed is not dropped', async () => {
    const { partitions } = context.store;
    await context.register('notify');
    const written = await context.write('a', 1);
    await partitions.create();
    await context.fixture.pass(never);
    await partitions.drop(0);
    expect(idsOf(await context.logged())).toEqual(written);
  });
}

/** Registers tests of how delivery reads the log while transactions are open. */
export function describeLateReads(context: DeliveryContext<ConcurrentDeliveryFixture>): void {
  test('Nothing is skipped when three transactions commit in the reverse order of their writes', async () => {
    const written: string[] = [];
    const read: string[] = [];
    let cursor: Cursor = await context.beginning();
    for (let round = 1; round <= 100; round++) {
      const transactions = [];
      for (const modelId of ['a', 'b', 'c']) {
        const transaction = await context.fixture.begin();
        written.push(...(await transaction.write(modelId, round)));
        transactions.push(transaction);
      }
      for (const transaction of transactions.toReversed()) {
        await transaction.commit();
        const batch = await context.store.log.read(context.slots, cursor, 1_000);
        read.push(...idsOf(batch.events));
        cursor = batch.next;
      }
    }
    expect(read.toSorted()).toEqual(written.toSorted());
  });

  test('Nothing of a transaction that was rolled back is read', async () => {
    const transaction = await context.fixture.begin();
    await transaction.write('thing', 1);
    const { next } = await context.store.log.read(context.slots, await context.beginning(), 10);
    await transaction.rollback();
    expect((await context.readOn(next)).events).toEqual([]);
  });

  test('Reading does not wait for a transaction that stays open, and returns its events when it has committed', async () => {
    const held = await context.fixture.begin();
    const late = await held.write('held', 1);
    let cursor: Cursor = await context.beginning();
    for (let version = 1; version <= 5; version++) {
      const ids = await context.write('other', version);
      const batch = await context.store.log.read(context.slots, cursor, 10);
      expect(idsOf(batch.events)).toEqual(ids);
      cursor = batch.next;
    }
    await held.commit();
    const { events, cursor: end } = await context.readOn(cursor);
    expect(idsOf(events)).toEqual(late);
    expect((await context.readOn(end)).events).toEqual([]);
  });

  test.each([1, 3, 7, 1_000])(
    'A backlog beside an open transaction is read in batches of about %i, without duplicates',
    async (limit) => {
      const held = await context.fixture.begin();
      const late = await held.write('held', 1);
      const written: string[] = [];
      for (let version = 1; version <= 20; version++) {
        const transaction = await context.fixture.begin();
        for (const model of ['a', 'b', 'c']) written.push(...(await transaction.write(model, version)));
        await transaction.commit();
      }
      const { events, cursor } = await context.readOn(await context.beginning(), limit);
      expect(idsOf(events)).toEqual(written);
      await held.commit();
      expect(idsOf((await context.readOn(cursor, limit)).events)).toEqual(late);
    },
  );

  test('A transaction larger than a batch is read to its end while the next one is open', async () => {
    const { store, slots } = context;
    const large = await context.fixture.begin();
    const largeIds = await large.write('large', 1, 2, 3);
    const next = await context.fixture.begin();
    const nextIds = await next.write('next', 1);
    await large.commit();
    const others = await context.write('large', 4, 5);
    const parts = [await store.log.read(slots, await context.beginning(), 1)];
    for (let index = 0; index < 2; index++) parts.push(await store.log.read(slots, at(parts, index).next, 1));
    expect(parts.flatMap(({ events }) => idsOf(events))).toEqual(largeIds);
    expect(parts.map(({ partial }) => partial === true)).toEqual([true, true, false]);
    await next.commit();
    const { events } = await context.readOn(at(parts, 2).next, 10);
    expect(idsOf(events)).toEqual([...nextIds, ...others]);
  });

  test('Parts of a transaction are read despite commits in between, which are read afterwards', async () => {
    const { store, slots } = context;
    const early = await context.fixture.begin();
    const earlyIds = await early.write('early', 1);
    const large = await context.fixture.begin();
    const largeIds = await large.write('large', 1, 2, 3, 4, 5);
    await large.commit();
    const first = await store.log.read(slots, await context.beginning(), 2);
    await early.commit();
    const laterIds = await context.write('later', 1);
    const second = await store.log.read(slots, first.next, 2);
    expect([...idsOf(first.events), ...idsOf(second.events)]).toEqual(largeIds.slice(0, 4));
    const { events } = await context.readOn(second.next, 2);
    expect(idsOf(events)).toEqual([...largeIds.slice(4), ...earlyIds, ...laterIds]);
  });
}

/** Registers tests of the positions of handlers and cursors while transactions are open. */
export function describeLateStarts(context: DeliveryContext<ConcurrentDeliveryFixture>): void {
  /** The ids of the events that a new handler reads, sorted. */
  const readBy = async (name: string): Promise<readonly string[]> => {
    const loaded = await context.store.cursors.load([0]);
    const { cursor } = at(
      loaded.filter(({ handler }) => handler === name),
      0,
    );
    return idsOf((await context.readOn(cursor)).events).toSorted();
  };

  test('A cursor is not moved back by a save that arrives late, although positions overlap', async () => {
    const { store, slots } = context;
    const open = await context.fixture.begin();
    await open.write('open', 1);
    const early = await context.fixture.begin();
    await early.write('early', 1);
    await context.write('late', 1);
    const leases = (await context.holdAll()).filter(({ handler }) => handler === 'notify');
    const saved = async (cursor: Cursor): Promise<Cursor | undefined> => {
      expect(await store.cursors.save(leases.map((lease) => ({ ...lease, cursor })))).toEqual([]);
      const own = (await store.cursors.load(slots)).filter(({ handler }) => handler === 'notify');
      expect(new Set(own.map((each) => each.cursor)).size).toBe(1);
      return own[0]?.cursor;
    };
    const first = await store.log.read(slots, await context.beginning(), 10);
    await early.commit();
    const second = await store.log.read(slots, first.next, 10);
    await context.write('late', 2);
    const third = await store.log.read(slots, second.next, 10);
    const standing = [];
    for (const { next } of [second, first, third, second]) standing.push(await saved(next));
    expect(standing).toEqual([second.next, second.next, third.next, third.next]);
    await open.rollback();
  });

  test('A handler that starts now is positioned before open transactions, and after committed ones', async () => {
    const open = await context.fixture.begin();
    const late = await open.write('b', 1);
    await context.write('a', 1);
    await context.store.cursors.register({ name: 'new', aliases: [], startFrom: 'now' });
    const next = await context.write('c', 1);
    await open.commit();
    expect(await readBy('new')).toEqual([...late, ...next].toSorted());
  });

  test('A handler with a start time is positioned before the transactions that were open then', async () => {
    await context.write('a', 1);
    await context.fixture.pass(60_000);
    const open = await context.fixture.begin();
    const late = await open.write('b', 1);
    const first = await context.write('c', 1);
    const { createdDate: time } = at(await context.logged(), 1);
    await context.store.cursors.register({ name: 'since', aliases: [], startFrom: { time } });
    await open.commit();
    const next = await context.write('d', 1);
    expect(await readBy('since')).toEqual(expect.arrayContaining([...late, ...first, ...next]));
  });
}
