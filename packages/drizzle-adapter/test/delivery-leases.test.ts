// @module-tag postgres
import { ShardIdentifier } from '@framework/core';
import { expect, test, vi } from 'vitest';
import { withEvents } from './fixtures/blocked-models.js';
import { allSlots, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';
import { query } from './fixtures/query.js';

const leaseMs = 60_000;
const mails = { name: 'mails', aliases: [], startFrom: 'beginning' } as const;
const books = { name: 'books', aliases: [], startFrom: 'beginning' } as const;

test('the slots of a vanished process are free after its lease, even if the database clock went back', async () => {
  const { store, url } = await openStore();
  await store.cursors.register(mails);
  await store.cursors.register(books);
  await store.leases.renew('alive', ['books'], leaseMs);
  await store.leases.renew('gone', ['mails'], 300);
  // As seen by a server whose clock is an hour behind that of the previous one.
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

test('the cursors of a new handler begin at the time that it asks for', async () => {
  const { store, url } = await openStore();
  const time = new Date('2020-01-01');
  await store.cursors.register({ name: 'since', aliases: [], startFrom: { time } });
  const [{ xmax } = { xmax: '' }] = await query<{ xmax: string }>(
    url,
    'select pg_snapshot_xmax(pg_current_snapshot())::text as xmax',
  );
  for (const { cursor } of await store.cursors.load(allSlots))
    expect(Number(cursor.split(':')[1])).toBeLessThanOrEqual(Number(xmax));
});

test('a cursor set to a time is before open transactions and after earlier commits', async () => {
  const { store, url } = await openStore();
  const [long, open, writer] = [
    await EventWriter.connect(url),
    await EventWriter.connect(url),
    await EventWriter.connect(url),
  ];
  await long.begin();
  await long.takeXid();
  const versions = Array.from({ length: 300 }, (_unused, index) => index + 1);
  const old = new Set(await writer.write('a', ...versions));
  await query(url, `update eventlog.events set created_date = created_date - interval '10 minutes'`);
  const [{ time } = { time: new Date() }] = await query<{ time: Date }>(
    url,
    "select date_trunc('milliseconds', clock_timestamp()) + interval '1 millisecond' as time",
  );
  await expect.poll(() => Date.now()).toBeGreaterThan(time.getTime());
  await open.begin();
  const late = await open.write('b', 1);
  const first = await writer.write('c', 1);
  await store.cursors.register({ name: 'since', aliases: [], startFrom: { time } });
  await open.commit();
  const next = await writer.write('d', 1);
  const [{ cursor } = { cursor: '' }] = await store.cursors.load(allSlots);
  const { events } = await store.log.read(allSlots, cursor, 1_000);
  const ids = events.map(({ id }) => id);
  expect(ids.filter((id) => !old.has(id)).toSorted()).toEqual([...late, ...first, ...next].toSorted());
  // It may begin a little before the time, but not at the beginning of the log.
  expect(events.length).toBeLessThan(200);
});

test('an event missing from the log may come again if it may be in the log of another database', async () => {
  const { store, url } = await withEvents('a', 1);
  const dayMs = 24 * 60 * 60 * 1_000;
  const [held, moved] = [ShardIdentifier.of(0, 0), ShardIdentifier.of(0, 1)];
  const isLater = { handler: 'notify', eventId: idMadeAt(Date.now() + 2 * dayMs), shard: held };
  const isEarlier = { handler: 'notify', eventId: idMadeAt(Date.now() - dayMs), shard: held };
  const ofAnother = { ...isLater, shard: moved };
  const asked = [isLater, isEarlier, ofAnother];
  expect(await store.blocked.mayComeAgain(asked)).toEqual([isEarlier, ofAnother]);
  await query(url, 'update eventlog.shards set released_date = now()');
  expect(await store.blocked.mayComeAgain(asked)).toEqual(asked);
});

/** The id of an event, a UUID version 7. */
function idMadeAt(ms: number): string {
  const digits = ms.toString(16).padStart(12, '0');
  return `${digits.slice(0, 8)}-${digits.slice(8)}-7000-8000-000000000000`;
}
