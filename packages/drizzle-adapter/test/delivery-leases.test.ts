import type { Cursor, DeliveryStore, SlotLease } from '@framework/core/adapter';
import { describe, expect, it, vi } from 'vitest';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';
import { query } from './fixtures/query.js';

const leaseMs = 60_000;
const mails = { name: 'mails', aliases: [], startFrom: 'beginning' } as const;
const books = { name: 'books', aliases: [], startFrom: 'beginning' } as const;
/** How a cursor begins that stands before the first event. */
const firstPlace = '1 1:1: ';
const halfOfSlots = allSlots.slice(0, 8);
const nobody = '00000000-0000-4000-8000-000000000000';

describe('slots', () => {
  it('all belong to a process that is alone, for every handler that it has', async () => {
    const store = await withHandlers();
    const renewal = await store.leases.renew('one', ['mails', 'books'], leaseMs);
    expect(placesOf(renewal.leases)).toEqual(placesIn(['mails', 'books'], allSlots));
    expect(renewal.leases.some(({ abandoned }) => abandoned)).toBe(false);
    expect(renewal.alone).toBe(true);
    expect(await store.leases.renew('one', ['mails', 'books'], leaseMs)).toEqual(renewal);
  });

  it('are shared fairly when further processes come, and taken over when they go', async () => {
    const store = await withHandlers();
    await store.leases.renew('one', ['mails'], leaseMs);
    expect(await store.leases.renew('two', ['mails'], leaseMs)).toMatchObject({ leases: [], alone: false });
    expect((await store.leases.renew('one', ['mails'], leaseMs)).leases).toHaveLength(8);
    expect((await store.leases.renew('two', ['mails'], leaseMs)).leases).toHaveLength(8);
    const holders = (await store.leases.list()).filter(({ handler }) => handler === 'mails');
    expect(holders.map(({ processId }) => processId)).toEqual(
      allSlots.map((slot) => (halfOfSlots.includes(slot) ? 'one' : 'two')),
    );

    await store.leases.release('one');
    const { leases } = await store.leases.renew('two', ['mails'], leaseMs);
    expect(leases).toHaveLength(16);
    expect(leases.some(({ abandoned }) => abandoned)).toBe(false);
  });

  it('are told with when the first of the other processes loses its own, also to who is given none', async () => {
    const store = await withHandlers();
    await store.leases.renew('one', ['mails'], leaseMs);
    await store.leases.renew('late', ['books'], 1);
    await vi.waitUntil(async () => (await store.leases.renew('one', ['mails'], leaseMs)).alone);
    const { leases, othersEndInMs } = await store.leases.renew('two', ['mails'], 2 * leaseMs);
    expect(leases).toEqual([]);
    expect(othersEndInMs).toBeGreaterThan(leaseMs / 2);
    expect(othersEndInMs).toBeLessThanOrEqual(leaseMs);
    const three = await store.leases.renew('three', ['mails'], leaseMs);
    expect(three.othersEndInMs).toBeLessThanOrEqual(leaseMs);
    await store.leases.release('one');
    await store.leases.release('three');
    expect((await store.leases.renew('two', ['mails'], leaseMs)).othersEndInMs).toBeUndefined();
  });

  it('are shared among the processes that have the handler, and by no others', async () => {
    const store = await withHandlers();
    await store.leases.renew('mailer', ['mails'], leaseMs);
    await store.leases.renew('bookkeeper', ['books'], leaseMs);
    await store.leases.renew('both', ['mails', 'books'], leaseMs);
    const renew = async (): Promise<readonly (readonly SlotLease[])[]> => [
      (await store.leases.renew('mailer', ['mails'], leaseMs)).leases,
      (await store.leases.renew('bookkeeper', ['books'], leaseMs)).leases,
      (await store.leases.renew('both', ['mails', 'books'], leaseMs)).leases,
    ];
    await renew();
    const [mailer = [], bookkeeper = [], both = []] = await renew();
    expect(placesOf(mailer)).toEqual(placesIn(['mails'], halfOfSlots));
    expect(placesOf(bookkeeper)).toEqual(placesIn(['books'], halfOfSlots));
    expect(placesOf(both)).toEqual(placesIn(['mails', 'books'], allSlots.slice(8)));
  });

  it('of a handler that a process has no more are given back', async () => {
    const store = await withHandlers();
    await store.leases.renew('one', ['mails', 'books'], leaseMs);
    const { leases } = await store.leases.renew('one', ['books'], leaseMs);
    expect(placesOf(leases)).toEqual(placesIn(['books'], allSlots));
    const taken = await store.leases.renew('two', ['mails'], leaseMs);
    expect(taken.leases).toHaveLength(16);
    expect(taken.leases.some(({ abandoned }) => abandoned)).toBe(false);
  });

  it('are given to the processes that know the most shards, and shared by those of which none knows more', async () => {
    const store = await withHandlers();
    const renew = async (id: string, ...shards: string[]): Promise<number> =>
      (await store.leases.renew(id, ['mails'], leaseMs, shards)).leases.length;
    expect(await renew('part', 'global')).toBe(16);
    expect(await renew('full', 'global', 'mexico')).toBe(0);
    expect(await renew('part', 'global')).toBe(0);
    expect(await renew('full', 'mexico', 'global')).toBe(16);
    await renew('other', 'brazil');
    await renew('twin', 'global', 'mexico', 'mexico');
    await renew('full', 'mexico', 'global');
    expect(await renew('part', 'global')).toBe(0);
    expect(await renew('other', 'brazil')).toBe(6);
    expect(await renew('twin', 'global', 'mexico')).toBe(4);
    expect(await renew('full', 'global', 'mexico')).toBe(6);
    for (const id of ['full', 'twin', 'other']) await store.leases.release(id);
    expect(await renew('part', 'global')).toBe(16);
  });

  it('do not go to processes for the shards that these knew before, nor for the sake of other handlers', async () => {
    const store = await withHandlers();
    const renew = async (id: string, handler: string, ...shards: string[]): Promise<number> =>
      (await store.leases.renew(id, [handler], leaseMs, shards)).leases.length;
    expect(await renew('one', 'mails', 'global')).toBe(16);
    expect(await renew('bookkeeper', 'books', 'global', 'mexico')).toBe(16);
    expect(await renew('one', 'mails', 'global')).toBe(16);
    expect(await renew('two', 'mails', 'global', 'mexico')).toBe(0);
    expect(await renew('one', 'mails', 'global', 'mexico')).toBe(8);
    expect(await renew('two', 'mails', 'global')).toBe(0);
    expect(await renew('one', 'mails', 'global', 'mexico')).toBe(16);
  });

  it('of a process that vanished are taken over as abandoned, once its lease is over', async () => {
    const store = await withHandlers();
    const before = await store.leases.renew('one', ['mails'], 50);
    const after = await vi.waitFor(async () => {
      const { leases } = await store.leases.renew('two', ['mails'], leaseMs);
      expect(leases).toHaveLength(16);
      return leases;
    }, 30_000);
    expect(after.every(({ abandoned }) => abandoned)).toBe(true);
    expect(after.map(({ token }) => token)).not.toEqual(before.leases.map(({ token }) => token));
    // The answer that said so first may have been lost; given back, they are like any others.
    expect((await store.leases.renew('two', ['mails'], leaseMs)).leases).toEqual(after);
    await store.leases.release('two');
    const { leases } = await store.leases.renew('three', ['mails'], leaseMs);
    expect(leases.some(({ abandoned }) => abandoned)).toBe(false);
  });

  it('are not taken for abandoned when the database was away for longer than a lease', async () => {
    const { store, url } = await withHandlersAt();
    for (let round = 0; round < 2; round++) {
      for (const id of ['one', 'two']) await store.leases.renew(id, ['mails'], leaseMs);
    }
    // Both live, and nobody could renew: whoever comes back first does not take the other for dead.
    await query(
      url,
      `update eventlog.processes
       set until_date = until_date - interval '2 minutes', renewed_date = renewed_date - interval '2 minutes'`,
    );
    const one = await store.leases.renew('one', ['mails'], leaseMs);
    const two = await store.leases.renew('two', ['mails'], leaseMs);
    expect([one.leases.length, two.leases.length]).toEqual([8, 8]);
    expect([...one.leases, ...two.leases].some(({ abandoned }) => abandoned)).toBe(false);
  });

  it('of a process that vanished are free after its lease, also when the clock of the database has gone back', async () => {
    const { store, url } = await openStore();
    await store.cursors.register([mails, books]);
    await store.leases.renew('alive', ['books'], leaseMs);
    await store.leases.renew('gone', ['mails'], 300);
    // As a server sees it whose clock is an hour behind that of the one before.
    await query(
      url,
      `update eventlog.processes
       set until_date = until_date + interval '1 hour', renewed_date = renewed_date + interval '1 hour'`,
    );
    expect((await store.leases.renew('two', ['mails'], leaseMs)).leases).toHaveLength(0);
    await vi.waitFor(async () => {
      expect((await store.leases.renew('two', ['mails'], leaseMs)).leases).toHaveLength(16);
    }, 30_000);
    const holders = new Map((await store.leases.list()).map((lease) => [lease.processId, lease.untilDate]));
    expect(new Set(holders.keys())).toEqual(new Set(['alive', 'two']));
    expect(holders.get('alive')!.getTime()).toBeLessThan(Date.now() + leaseMs + 1_000);
  });

  it('are never held by two processes when many come at once', async () => {
    const store = await withHandlers();
    const names = Array.from({ length: 10 }, (_unused, index) => `process-${index}`);
    const renewAll = () => Promise.all(names.map((name) => store.leases.renew(name, ['mails'], leaseMs)));
    await renewAll();
    await renewAll();
    const held = (await renewAll()).flatMap(({ leases }) => leases);
    expect(held.map(({ slot }) => slot).toSorted((one, other) => one - other)).toEqual(allSlots);
  });
});

describe('cursors', () => {
  it('are made once, at the start that a new handler asks for', async () => {
    const { store } = await openStore();
    const late = { name: 'late', aliases: [], startFrom: 'now' } as const;
    await Promise.all(Array.from({ length: 5 }, () => store.cursors.register([mails, late])));
    const cursors = await store.cursors.load(allSlots);
    expect(cursors).toHaveLength(32);
    for (const { handler: name, cursor } of cursors)
      expect(cursor.startsWith(firstPlace)).toBe(name === 'mails');
  });

  it('are saved under the lease of their handler and slot only', async () => {
    const store = await withHandlers();
    const { leases } = await store.leases.renew('one', ['mails'], leaseMs);
    const [held, lost] = leases;
    const { next } = await store.log.read(allSlots, await beginningOf(store), 10);
    const moves = [
      { handler: 'mails', slot: held!.slot, token: held!.token, cursor: next },
      { handler: 'mails', slot: lost!.slot, token: nobody, cursor: next },
      { handler: 'books', slot: held!.slot, token: held!.token, cursor: next },
    ];
    expect(await store.cursors.save(moves)).toEqual([nobody]);
    const moved = (await store.cursors.load(allSlots)).filter(({ cursor }) => !cursor.startsWith(firstPlace));
    expect(moved).toMatchObject([{ handler: 'mails', slot: held!.slot }]);
  });

  it('are moved back by no save that comes after a later one', async () => {
    const { store, url } = await openStore();
    await store.cursors.register([{ name: 'mails', aliases: [], startFrom: 'beginning' }]);
    const [open, early, late] = [
      await EventWriter.connect(url),
      await EventWriter.connect(url),
      await EventWriter.connect(url),
    ];
    for (const writer of [open, early]) await writer.begin();
    await open.write('open', 1);
    await early.write('early', 1);
    await late.write('late', 1);
    const { leases } = await store.leases.renew('one', ['mails'], leaseMs);
    const saved = async (cursor: Cursor): Promise<Cursor | undefined> => {
      expect(await store.cursors.save(leases.map((lease) => ({ ...lease, cursor })))).toEqual([]);
      const cursors = new Set((await store.cursors.load(allSlots)).map((each) => each.cursor));
      expect(cursors.size).toBe(1);
      return [...cursors][0];
    };
    const first = await store.log.read(allSlots, await beginningOf(store), 10);
    await early.commit();
    const second = await store.log.read(allSlots, first.next, 10);
    await late.write('late', 2);
    const third = await store.log.read(allSlots, second.next, 10);
    const standing = [];
    for (const { next } of [second, first, third, second]) standing.push(await saved(next));
    expect(standing).toEqual([second.next, second.next, third.next, third.next]);
  });

  it('are the same for all names of a handler, whichever code comes first and comes back', async () => {
    const { store } = await openStore();
    const older = { name: 'notify', aliases: [], startFrom: 'beginning' } as const;
    const newer = { name: 'tell', aliases: ['inform', 'notify'], startFrom: 'now' } as const;
    expect(await store.cursors.register([older])).toEqual(['notify']);
    expect(await store.cursors.register([newer])).toEqual(['notify']);
    expect(await store.cursors.register([older])).toEqual(['notify']);
    expect(await store.cursors.register([{ ...newer, aliases: [] }])).toEqual(['notify']);
    expect(await store.cursors.find('inform')).toBe('notify');
    expect(await store.cursors.find('nobody')).toBeUndefined();
    const [known, ...others] = await store.cursors.known();
    expect(known).toMatchObject({ handler: 'notify', paused: false });
    expect(known?.names.toSorted()).toEqual(['inform', 'notify', 'tell']);
    expect(others).toEqual([]);
  });

  it('are refused to a handler whose names belong to two', async () => {
    const store = await withHandlers();
    const both = { name: 'both', aliases: ['mails', 'books'], startFrom: 'now' } as const;
    await expect(store.cursors.register([both])).rejects.toMatchObject({
      code: 'handler-names',
      handlers: ['books', 'mails'],
    });
    expect(await store.cursors.find('both')).toBeUndefined();
  });

  it('are refused to a handler under a name that another one of the same process had', async () => {
    const { store } = await openStore();
    const renamed = { name: 'settle', aliases: ['complete'], startFrom: 'now' } as const;
    const settle = { ...renamed, aliases: [] };
    await store.cursors.register([{ ...renamed, name: 'complete', aliases: [] }]);
    await store.cursors.register([renamed]);
    const complete = { name: 'complete', aliases: ['finish'], startFrom: 'now' } as const;
    await expect(store.cursors.register([settle, complete])).rejects.toMatchObject({
      code: 'handler-names',
      handler: 'complete',
      handlers: ['complete'],
    });
    expect(await store.cursors.find('finish')).toBeUndefined();
    expect(await store.cursors.register([settle])).toEqual(['complete']);
  });

  it('stand at a time that a new handler asks for', async () => {
    const { store, url } = await openStore();
    const time = new Date('2020-01-01');
    await store.cursors.register([{ name: 'since', aliases: [], startFrom: { time } }]);
    const [{ xmax } = { xmax: '' }] = await query<{ xmax: string }>(
      url,
      'select pg_snapshot_xmax(pg_current_snapshot())::text as xmax',
    );
    for (const { cursor } of await store.cursors.load(allSlots))
      expect(Number(cursor.split(':')[1])).toBeLessThanOrEqual(Number(xmax));
  });

  it('that start now lie before what is open then, and behind what was committed, in whatever order that began', async () => {
    const { store, url } = await openStore();
    const [open, writer] = [await EventWriter.connect(url), await EventWriter.connect(url)];
    await open.begin();
    const late = await open.write('b', 1);
    await writer.write('a', 1);
    await store.cursors.register([{ name: 'new', aliases: [], startFrom: 'now' }]);
    const next = await writer.write('c', 1);
    await open.commit();
    const [{ cursor } = { cursor: '' }] = await store.cursors.load(allSlots);
    const { events } = await store.log.read(allSlots, cursor, 10);
    expect(events.map(({ id }) => id).toSorted()).toEqual([...late, ...next].toSorted());
  });

  it('that stand at a time lie before what was open then, and behind what was committed earlier', async () => {
    const { store, url } = await openStore();
    const [long, open, writer] = [
      await EventWriter.connect(url),
      await EventWriter.connect(url),
      await EventWriter.connect(url),
    ];
    await long.begin();
    await long.takeXid();
    await writer.write('a', 1);
    const [{ time } = { time: new Date() }] = await query<{ time: Date }>(
      url,
      "select date_trunc('milliseconds', clock_timestamp()) + interval '1 millisecond' as time",
    );
    await expect.poll(() => Date.now()).toBeGreaterThan(time.getTime());
    await open.begin();
    const late = await open.write('b', 1);
    const first = await writer.write('c', 1);
    await store.cursors.register([{ name: 'since', aliases: [], startFrom: { time } }]);
    await open.commit();
    const next = await writer.write('d', 1);
    const [{ cursor } = { cursor: '' }] = await store.cursors.load(allSlots);
    const { events } = await store.log.read(allSlots, cursor, 10);
    expect(events.map(({ id }) => id).toSorted()).toEqual([...late, ...first, ...next].toSorted());
  });
});

describe('a handler that nobody has any more', () => {
  it('is forgotten with its cursors and names, but not while a process has it', async () => {
    const store = await withHandlers();
    await store.leases.renew('one', ['mails', 'books'], leaseMs);
    const retired = (): Promise<void> => store.cursors.retire('mails', { discardBlocked: false });
    await expect(retired()).rejects.toMatchObject({ code: 'handler-in-use', handler: 'mails' });
    await store.leases.renew('one', ['books'], leaseMs);
    await retired();
    expect(await store.cursors.find('mails')).toBeUndefined();
    expect((await store.cursors.load(allSlots)).map(({ handler }) => handler)).toEqual(
      allSlots.map(() => 'books'),
    );
  });

  it('is not forgotten while its process may only be late: for as long again as its lease was', async () => {
    const { store, url } = await withHandlersAt();
    await store.leases.renew('one', ['mails'], leaseMs);
    const seen = (hoursAgo: number): Promise<unknown> =>
      query(
        url,
        `update eventlog.processes set renewed_date = clock_timestamp() - interval '${hoursAgo} hours',
           until_date = clock_timestamp() - interval '${hoursAgo - 1} hours'`,
      );
    await seen(1.9);
    const retired = (): Promise<void> => store.cursors.retire('mails', { discardBlocked: false });
    await expect(retired()).rejects.toMatchObject({
      code: 'handler-in-use',
      message: expect.stringContaining('process one'),
    });
    await seen(2.1);
    await retired();
    expect(await store.cursors.find('mails')).toBeUndefined();
  });
});

async function withHandlers(): Promise<DeliveryStore> {
  return (await withHandlersAt()).store;
}

async function withHandlersAt(): Promise<{ readonly store: DeliveryStore; readonly url: string }> {
  const { store, url } = await openStore();
  await store.cursors.register([mails, books]);
  return { store, url };
}

function placesOf(leases: readonly SlotLease[]): readonly string[] {
  return leases.map(({ handler, slot }) => `${handler} ${slot}`).toSorted();
}

function placesIn(handlers: readonly string[], slots: readonly number[]): readonly string[] {
  return handlers.flatMap((handler) => slots.map((slot) => `${handler} ${slot}`)).toSorted();
}
