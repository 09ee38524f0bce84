import { type Cursor, type DeliverableEvent, type DeliveryStore, slotOf } from '@framework/core/adapter';
import { describe, expect, it, onTestFinished } from 'vitest';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { ChildProgram } from './fixtures/child-program.js';
import { EventWriter } from './fixtures/event-writer.js';
import { query } from './fixtures/query.js';

describe('reading the log between cursors', () => {
  it('skips nothing when the transaction that began later commits first, a hundred times, with three writers', async () => {
    const { store, url } = await openStore();
    const writers = [
      await EventWriter.connect(url),
      await EventWriter.connect(url),
      await EventWriter.connect(url),
    ];
    const written: string[] = [];
    const read: string[] = [];
    let cursor: Cursor = await beginningOf(store);
    const readOn = async (): Promise<void> => {
      const batch = await store.log.read(allSlots, cursor, 1_000);
      read.push(...idsOf(batch.events));
      cursor = batch.next;
    };
    for (let round = 1; round <= 100; round++) {
      for (const writer of writers) await writer.begin();
      for (const [index, writer] of writers.entries())
        written.push(...(await writer.write(`thing-${index}`, round)));
      for (const writer of writers.toReversed()) {
        await writer.commit();
        await readOn();
      }
    }
    expect(read.toSorted()).toEqual(written.toSorted());
  });

  it('gives nothing of a transaction that was rolled back', async () => {
    const { store, url } = await openStore();
    const writer = await EventWriter.connect(url);
    await writer.begin();
    await writer.write('thing', 1);
    const { next } = await store.log.read(allSlots, await beginningOf(store), 10);
    await writer.rollback();
    expect((await store.log.read(allSlots, next, 10)).events).toEqual([]);
  });

  it('gives nothing of what records an action without events, and counts it for nobody', async () => {
    const { store, url } = await openStore();
    await store.cursors.register([{ name: 'notify', aliases: [], startFrom: 'beginning' }]);
    const [id] = await (await EventWriter.connect(url)).write('thing', 1);
    // As it stands in the log, but for its slot: it has none.
    await query(url, 'update eventlog.events set event_type = null');
    expect((await store.log.read(allSlots, await beginningOf(store), 10)).events).toEqual([]);
    expect(await store.log.find(id!)).toBeUndefined();
    expect(await store.cursors.lag()).toMatchObject([{ handler: 'notify', pendingCount: 0 }]);
  });

  it('does not wait for a transaction that stays open, and gives its events when it commits', async () => {
    const { store, url } = await openStore();
    const [held, other] = [await EventWriter.connect(url), await EventWriter.connect(url)];
    await held.begin();
    const late = await held.write('held', 1);
    let cursor: Cursor = await beginningOf(store);
    for (let version = 1; version <= 5; version++) {
      const ids = await other.write('other', version);
      const batch = await store.log.read(allSlots, cursor, 10);
      expect(idsOf(batch.events)).toEqual(ids);
      cursor = batch.next;
    }
    await held.commit();
    const batch = await store.log.read(allSlots, cursor, 10);
    expect(idsOf(batch.events)).toEqual(late);
    expect((await store.log.read(allSlots, batch.next, 10)).events).toEqual([]);
  });

  it.each([1, 3, 7, 1_000])('gives a backlog in batches of about %i, nothing twice', async (limit) => {
    const { store, url } = await openStore();
    const [writer, held] = [await EventWriter.connect(url), await EventWriter.connect(url)];
    await held.begin();
    const late = await held.write('held', 1);
    const written: string[] = [];
    for (let version = 1; version <= 20; version++) {
      await writer.begin();
      for (const model of ['a', 'b', 'c']) written.push(...(await writer.write(model, version)));
      await writer.commit();
    }
    const { read, cursor } = await readAll(store, await beginningOf(store), limit);
    expect(idsOf(read)).toEqual(written);
    await held.commit();
    expect(idsOf((await readAll(store, cursor, limit)).read)).toEqual(late);
  });

  it('cuts behind a transaction that is larger than a batch while the next one is open', async () => {
    const { store, url } = await openStore();
    const [large, next] = [await EventWriter.connect(url), await EventWriter.connect(url)];
    await large.begin();
    const largeIds = await large.write('large', 1, 2, 3);
    await next.begin();
    const nextIds = await next.write('next', 1);
    await large.commit();
    const others = [...(await large.write('large', 4)), ...(await large.write('large', 5))];
    const parts = [await store.log.read(allSlots, await beginningOf(store), 1)];
    for (let index = 0; index < 2; index++) parts.push(await store.log.read(allSlots, parts.at(-1)!.next, 1));
    expect(parts.flatMap(({ events }) => idsOf(events))).toEqual(largeIds);
    expect(parts.map(({ partial }) => partial === true)).toEqual([true, true, false]);
    await next.commit();
    expect(idsOf((await readAll(store, parts.at(-1)!.next, 10)).read)).toEqual([...nextIds, ...others]);
  });

  it('gives the parts of one transaction although others commit between them, and theirs afterwards', async () => {
    const { store, url } = await openStore();
    const [early, large, later] = [
      await EventWriter.connect(url),
      await EventWriter.connect(url),
      await EventWriter.connect(url),
    ];
    await early.begin();
    const earlyIds = await early.write('early', 1);
    await large.begin();
    const largeIds = await large.write('large', 1, 2, 3, 4, 5);
    await large.commit();
    const first = await store.log.read(allSlots, await beginningOf(store), 2);
    await early.commit();
    const laterIds = await later.write('later', 1);
    const second = await store.log.read(allSlots, first.next, 2);
    expect([...idsOf(first.events), ...idsOf(second.events)]).toEqual(largeIds.slice(0, 4));
    const { read } = await readAll(store, second.next, 2);
    expect(idsOf(read)).toEqual([...largeIds.slice(4), ...earlyIds, ...laterIds]);
  });

  it('stands before a large transaction where a place within it was saved', async () => {
    const { store, url } = await openStore();
    const large = await EventWriter.connect(url);
    await store.cursors.register([{ name: 'notify', aliases: [], startFrom: 'beginning' }]);
    await large.begin();
    const ids = await large.write('large', 1, 2, 3);
    await large.commit();
    const slots = [slotOf('large', allSlots.length)];
    const { leases } = await store.leases.renew('one', ['notify'], 60_000);
    const { token, slot } = leases.find((lease) => lease.slot === slots[0])!;
    const { next, partial } = await store.log.read(slots, await beginningOf(store), 2);
    expect(partial).toBe(true);
    expect(await store.cursors.save([{ handler: 'notify', slot, token, cursor: next }])).toEqual([]);
    const [saved] = await store.cursors.load(slots);
    expect(idsOf((await readAll(store, saved!.cursor, 10)).read)).toEqual(ids);
  });

  it(
    'gives one transaction of 200,000 events to a process with a small heap',
    { timeout: 180_000, tags: ['slow'] },
    async () => {
      const { url } = await openStore();
      await query(
        url,
        `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
           model_name, model_version, event_type, payload, headers, started_date, slot)
         select gen_random_uuid(), '00000000-0000-4000-8000-000000000000', n, 'test', 'Write', '{}', 'test', 'm' || n,
           'Thing', 1, 'ThingChangedEvent', jsonb_build_object('text', repeat('x', 1000)), '{}', now(), n % 16
         from generate_series(1, 200000) n`,
      );
      const reader = await ChildProgram.of('read-log.ts', '--max-old-space-size=64');
      onTestFinished(() => reader.remove());
      const seen = JSON.parse(await reader.run(url)) as unknown;
      expect(seen).toEqual({ count: 200_000, ordinals: 20_000_100_000, largest: 1_000 });
    },
  );

  it('gives only what falls into the slots', async () => {
    const { store, url } = await openStore();
    const writer = await EventWriter.connect(url);
    const written: string[] = [];
    for (let model = 0; model < 64; model++) written.push(...(await writer.write(`model-${model}`, 1)));
    const halves = [allSlots.slice(0, 8), allSlots.slice(8)];
    const beginning = await beginningOf(store);
    const read = await Promise.all(halves.map((slots) => store.log.read(slots, beginning, 1_000)));
    expect(read.map(({ events }) => events.length).every((length) => length > 0)).toBe(true);
    expect(read.flatMap(({ events }) => idsOf(events)).toSorted()).toEqual(written.toSorted());
  });

  it.each([1, 2, 1_000])(
    'keeps the order of versions when the earlier xid wrote the later version, in batches of %i',
    async (limit) => {
      const { store, url } = await openStore();
      const [early, other] = [await EventWriter.connect(url), await EventWriter.connect(url)];
      await early.begin();
      await early.takeXid();
      await other.write('thing', 1);
      await other.write('thing', 2);
      await early.write('thing', 3);
      await early.commit();
      const { read } = await readAll(store, await beginningOf(store), limit);
      const first = new Map(read.toReversed().map(({ modelVersion }, index) => [modelVersion, -index]));
      expect([...first].toSorted(([, one], [, two]) => one - two).map(([version]) => version)).toEqual([
        1, 2, 3,
      ]);
    },
  );

  it('takes no model of another kind for an earlier version, though its id is the same', async () => {
    const { store, url } = await openStore();
    const [early, other] = [await EventWriter.connect(url), await EventWriter.connect(url)];
    await early.begin();
    await early.takeXid();
    await other.write('thing', 1);
    const [, cut] = await early.write('thing', 2, 3);
    await early.commit();
    await query(url, `update eventlog.events set model_name = 'Another' where model_version = 1`);
    const from = await beginningOf(store);
    const { events } = await store.log.read(allSlots, from, 2);
    expect(events.map(({ modelVersion }) => modelVersion)).toEqual([2, 3]);
    expect(events.at(-1)!.id).toBe(cut);
  });
});

async function readAll(
  store: DeliveryStore,
  from: Cursor,
  limit: number,
): Promise<{ readonly read: readonly DeliverableEvent[]; readonly cursor: Cursor }> {
  const read: DeliverableEvent[] = [];
  let cursor = from;
  for (let more = true; more;) {
    const batch = await store.log.read(allSlots, cursor, limit);
    read.push(...batch.events);
    ({ next: cursor, more } = batch);
  }
  return { read, cursor };
}

function idsOf(events: readonly DeliverableEvent[]): string[] {
  return events.map(({ id }) => id);
}
