// @module-tag postgres
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DeliverableEvent, DeliveryStore } from '@framework/core/adapter';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { seededRandom } from '@framework/testing';
import { TestPostgres } from '@framework/testing/postgres';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { copyDatabase } from './fixtures/copy-database.js';
import { allSlots } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { EventWriter } from './fixtures/event-writer.js';
import { openRegistry } from './fixtures/open-registry.js';
import { alone, failedOnce } from './fixtures/blocked-models.js';
import { query } from './fixtures/query.js';

const leaseMs = 60_000;
const handler = 'mails';

/** A second server, whose transaction numbers are unrelated to those of the first. */
let elsewhere: TestPostgres;

beforeAll(async () => {
  const directory = await mkdtemp(join(tmpdir(), 'second-server-'));
  const server = await EmbeddedPostgres.start({ directory, settings: { fsync: 'off' } });
  elsewhere = new TestPostgres(server.url('postgres'), async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  });
});

afterAll(() => elsewhere.stop());

test('a log does not fall back to an earlier epoch while a restore has emptied its table of epochs', async () => {
  const url = await newDatabase();
  await openStoreOn(url);
  await query(url, 'alter table only eventlog.events alter column epoch set default 3');
  await query(url, 'delete from eventlog.epochs');
  expect(await query(url, 'select epoch, begun from eventlog.ensure_epoch()')).toEqual([
    { epoch: 3, begun: false },
  ]);
  expect((await epochsOf(url)).at(-1)).toBe(3);
});

describe('a log that was copied to another server', () => {
  test('continues at its cursors, delivering nothing twice and skipping nothing', async () => {
    const source = await newDatabase();
    await burnTransactions(source);
    const store = await openStoreOn(source);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    const [writer, late] = [await EventWriter.connect(source), await EventWriter.connect(source)];
    await writer.write('a', 1, 2, 3);
    await late.begin();
    const lateIds = await late.write('late', 1);
    expect(await readOn(store)).toHaveLength(3);
    const restIds = await writer.write('a', 4, 5);
    await late.commit();

    const target = await newDatabase(elsewhere);
    await copyDatabase(source, target);
    const warnings = warningsOfEpochs();
    const moved = await openStoreOn(target);
    expect(await epochsOf(target)).toEqual([1, 2]);
    await vi.waitFor(() => expect(warnings()).toHaveLength(1), 30_000);
    const newIds = await (await EventWriter.connect(target)).write('a', 6);
    const read = idsOf(await readOn(moved));
    expect(read.slice(0, 3).toSorted()).toEqual([...lateIds, ...restIds].toSorted());
    expect(read.slice(3)).toEqual(newIds);
    expect(await readOn(moved)).toEqual([]);
    // Lag counts events of both epochs.
    expect(await moved.cursors.lag()).toMatchObject([{ handler, pendingCount: 0 }]);
  });

  test('keeps the boundary of its epochs while the first new batch is handled', async () => {
    const source = await newDatabase();
    const before = await openStoreOn(source);
    await before.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    const oldIds = await (await EventWriter.connect(source)).write('a', 1, 2);
    const target = await newDatabase(elsewhere);
    await copyDatabase(source, target);
    const store = await openStoreOn(target);
    const newIds = await (await EventWriter.connect(target)).write('a', 3);
    const { leases } = await store.leases.renew('one', [handler], leaseMs);
    const [{ cursor } = { cursor: '' }] = await store.cursors.load(allSlots);
    const old = await store.log.read(allSlots, cursor, 10);
    expect(idsOf(old.events)).toEqual(oldIds);
    expect(await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: old.next })))).toEqual([]);
    expect(idsOf(await readOn(store))).toEqual(newIds);

    // Like any other position, the end of an epoch belongs to the history in which it was read.
    await failOver(target);
    await expect(store.log.read(allSlots, old.next, 10)).rejects.toMatchObject({ code: 'history-changed' });
  });

  test("begins an epoch after a base backup, although the server's identifier is the same", async () => {
    const source = await newDatabase();
    const target = await newDatabase(elsewhere);
    while ((await nextTransaction(source)) <= (await nextTransaction(target)) + 10_000n)
      await burnTransactions(source);
    const store = await openStoreOn(source);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    await (await EventWriter.connect(source)).write('a', 1, 2, 3);
    expect(await readOn(store)).toHaveLength(3);
    await copyDatabase(source, target);
    await query(target, 'update eventlog.epochs set system_identifier = eventlog.server_identity()');
    const copy = await openStoreOn(target);
    expect(await epochsOf(target)).toEqual([1, 2]);
    const newIds = await (await EventWriter.connect(target)).write('a', 4);
    expect(idsOf(await readOn(copy))).toEqual(newIds);
    expect(await readOn(copy)).toEqual([]);
  });

  test('starts handlers at its beginning or at its end, as they ask', async () => {
    const source = await newDatabase();
    await burnTransactions(source);
    await openStoreOn(source);
    const oldIds = await (await EventWriter.connect(source)).write('a', 1, 2, 3);
    const target = await newDatabase(elsewhere);
    await copyDatabase(source, target);
    const store = await openStoreOn(target);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    await store.cursors.register({ name: 'late', aliases: [], startFrom: 'now' });
    const newIds = await (await EventWriter.connect(target)).write('a', 4);
    expect(idsOf(await readOn(store))).toEqual([...oldIds, ...newIds]);
    expect(idsOf(await readOn(store, 'late'))).toEqual(newIds);
  });

  test('shares one epoch with its copy on the same server, whose transaction numbers continue', async () => {
    const source = await newDatabase();
    const store = await openStoreOn(source);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    const [writer, late] = [await EventWriter.connect(source), await EventWriter.connect(source)];
    await late.begin();
    const lateIds = await late.write('late', 1);
    await writer.write('a', 1, 2);
    await readOn(store);
    await late.commit();
    const restIds = await writer.write('a', 3);
    const target = await newDatabase();
    await copyDatabase(source, target);
    const copy = await openStoreOn(target);
    expect(await epochsOf(target)).toEqual([1]);
    const newIds = await (await EventWriter.connect(target)).write('a', 4);
    expect(idsOf(await readOn(copy)).toSorted()).toEqual([...lateIds, ...restIds, ...newIds].toSorted());
    expect(await readOn(copy)).toEqual([]);
  });

  test.each([1, 2, 3])(
    'delivers every event once, in order, however often it moves (seed %i)',
    async (seed) => {
      const random = seededRandom(seed);
      const servers = [undefined, elsewhere];
      let url = await newDatabase();
      let store = await openStoreOn(url);
      await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
      const written: string[] = [];
      const read: string[] = [];
      let version = 0;
      for (let move = 1; move <= 4; move++) {
        for (let step = 0; step < 6; step++) {
          const writer = await EventWriter.connect(url);
          if (random() < 0.3) await burnTransactions(url);
          await writer.begin();
          for (let count = Math.ceil(random() * 4); count > 0; count--) {
            written.push(...(await writer.write('a', ++version)));
          }
          if (random() < 0.4) await readOn(store).then((events) => read.push(...idsOf(events)));
          await writer.commit();
          if (random() < 0.4) await readOn(store, handler, 2).then((events) => read.push(...idsOf(events)));
        }
        const target = await newDatabase(servers[Math.floor(random() * 2)]);
        await copyDatabase(url, target);
        url = target;
        store = await openStoreOn(url);
      }
      read.push(...idsOf(await readOn(store)));
      expect(read).toEqual(written);
    },
  );
});

describe('a process whose connections reach another server', () => {
  test('begins a new epoch before it writes anything there', async () => {
    const url = await newDatabase();
    const store = await openStoreOn(url);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    // A copy brings along what the log records about its server.
    await query(url, `update eventlog.epochs set system_identifier = 'the server before'`);
    await query(
      url,
      `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()`,
    );
    await vi.waitFor(() => store.leases.renew('one', [handler], leaseMs), 30_000);
    expect(await epochsOf(url)).toEqual([1, 2]);
  });

  test('begins one epoch when many processes arrive at once', async () => {
    const source = await newDatabase();
    await openStoreOn(source);
    const target = await newDatabase(elsewhere);
    await copyDatabase(source, target);
    await Promise.all(Array.from({ length: 6 }, () => openStoreOn(target)));
    expect(await epochsOf(target)).toEqual([1, 2]);
  });

  test('treats a log as copied if it is ahead of an anonymous server', async () => {
    const url = await newDatabase();
    const store = await openStoreOn(url);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    const hide = `create or replace function eventlog.server_identity() returns text language sql stable as 'select null'`;
    await query(url, `${hide}; update eventlog.epochs set system_identifier = null`);
    await query(url, 'select eventlog.ensure_epoch()');
    expect(await epochsOf(url)).toEqual([1]);
    await query(url, `update eventlog.cursors set snapshot = '99999999:99999999:'`);
    // Within one history, the log cannot get ahead of the server, so this is checked only once.
    await query(url, 'select eventlog.ensure_epoch()');
    expect(await epochsOf(url)).toEqual([1]);
    await failOver(url);
    await query(url, 'begin read only; select eventlog.ensure_epoch(); commit');
    expect(await epochsOf(url)).toEqual([1]);
    await query(url, 'select eventlog.ensure_epoch()');
    expect(await epochsOf(url)).toEqual([1, 2]);
  });
});

describe('a failover', () => {
  test('ends every lease and every position in the log, none of which is accepted afterwards', async () => {
    const url = await newDatabase();
    const store = await openStoreOn(url);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    await (await EventWriter.connect(url)).write('a', 1);
    const { leases } = await store.leases.renew('one', [handler], leaseMs);
    const [{ cursor: first } = { cursor: '' }] = await store.cursors.load(allSlots);
    const { events, next } = await store.log.read(allSlots, first, 10);
    const event = events[0]!;
    const { slot, token } = leases.find((lease) => lease.slot === event.slot)!;
    const failure = { ...failedOnce, handler, token, event };
    expect(await store.blocked.fail([failure])).toEqual([]);
    const [head] = await store.blocked.dueHeads([{ handler, slot }], 1);
    const { modelName, modelId } = event;
    const move = { handler, slot, token, modelName, modelId, position: event, ends: true };

    await failOver(url);
    expect(await store.cursors.save([{ handler, slot, token, cursor: next }])).toEqual([token]);
    expect(await store.blocked.fail([failure])).toEqual([token]);
    expect(await store.blocked.hold([failure])).toEqual([token]);
    expect(await store.blocked.dueHeads([{ handler, slot }], 1)).toEqual([]);
    expect(await store.blocked.begin([{ head: head!, attempt: alone('first') }])).toEqual([false]);
    expect(await store.blocked.move([move])).toEqual([token]);
    await expect(store.log.read(allSlots, next, 10)).rejects.toMatchObject({ code: 'history-changed' });

    const renewal = await store.leases.renew('one', [handler], leaseMs);
    expect(renewal.leases).toHaveLength(allSlots.length);
    const before = new Set(leases.map((lease) => lease.token));
    expect(renewal.leases.some((lease) => before.has(lease.token) || lease.abandoned)).toBe(false);
    // Even under a current lease, an old cursor is not saved.
    const renewed = renewal.leases.find((lease) => lease.slot === slot)!;
    const stale = { handler, slot, token: renewed.token, cursor: next };
    expect(await store.cursors.save([stale])).toEqual([renewed.token]);
    expect(idsOf(await readOn(store))).toEqual([event.id]);
  });

  test('takes no slot from a process that renews its lease afterwards', async () => {
    const url = await newDatabase();
    const store = await openStoreOn(url);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    const renew = (id: string, givenBack?: readonly string[]) =>
      store.leases.renew(id, [handler], leaseMs, [], givenBack);
    const { leases: all } = await renew('one');
    await renew('two');
    await renew(
      'one',
      all.slice(8).map(({ token }) => token),
    );
    const { leases: before } = await renew('two');
    expect(before).toHaveLength(8);
    await failOver(url);
    expect((await renew('one')).leases).toHaveLength(8);
    const { leases } = await renew('two');
    expect(leases.map(({ slot }) => slot)).toEqual(before.map(({ slot }) => slot));
    expect(leases.some((lease) => lease.abandoned || lease.token === before[0]!.token)).toBe(false);
  });

  test('does not hide a vanished process, whose slots are taken over one lease time after the first renewal', async () => {
    const url = await newDatabase();
    const store = await openStoreOn(url);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    await store.leases.renew('gone', [handler], 200);
    await failOver(url);
    expect((await store.leases.renew('one', [handler], leaseMs)).leases).toEqual([]);
    await vi.waitFor(async () => {
      const { leases } = await store.leases.renew('one', [handler], leaseMs);
      expect(leases).toHaveLength(allSlots.length);
      expect(leases.every(({ abandoned }) => abandoned)).toBe(true);
    }, 30_000);
  });

  test('ends the recovery of slots, which their holder has not finished in the new history', async () => {
    const url = await newDatabase();
    const store = await openStoreOn(url);
    await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    await store.leases.renew('gone', [handler], 1);
    const renew = async () => (await store.leases.renew('one', [handler], leaseMs)).leases;
    await vi.waitFor(async () => expect(await renew()).toHaveLength(allSlots.length), 30_000);
    const tokens = (await renew()).map(({ token }) => token);
    await failOver(url);
    await store.leases.recovered(tokens);
    const renewed = await renew();
    expect(renewed.every(({ abandoned }) => abandoned)).toBe(true);
    await store.leases.recovered(renewed.map(({ token }) => token));
    expect((await renew()).some(({ abandoned }) => abandoned)).toBe(false);
  });
});

/** A migrated database without other users, by default on the server of the tests. */
async function newDatabase(server?: TestPostgres): Promise<string> {
  const database = server === undefined ? await emptyDatabase() : await server.createDatabase();
  onTestFinished(() => database.drop());
  const registry = openRegistry([{ group: 0, member: 0, url: database.url }], {});
  await registry.ready();
  await registry.close();
  return database.url;
}

async function openStoreOn(url: string): Promise<DeliveryStore> {
  const registry = openRegistry([{ group: 0, member: 0, url }], {});
  await registry.ready();
  return registry.deliveries()[0]!.store;
}

/** Reads everything beyond the saved cursors, saves them, and returns the events in order. */
async function readOn(
  store: DeliveryStore,
  name = handler,
  limit = 100,
): Promise<readonly DeliverableEvent[]> {
  await store.leases.release('reader');
  const { leases } = await store.leases.renew('reader', [name], leaseMs);
  const cursors = (await store.cursors.load(allSlots)).filter((each) => each.handler === name);
  expect(new Set(cursors.map(({ cursor }) => cursor)).size).toBe(1);
  const read: DeliverableEvent[] = [];
  let { cursor } = cursors[0]!;
  for (let more = true; more;) {
    const batch = await store.log.read(allSlots, cursor, limit);
    read.push(...batch.events);
    ({ next: cursor, more } = batch);
  }
  expect(await store.cursors.save(leases.map((lease) => ({ ...lease, cursor })))).toEqual([]);
  return read;
}

async function nextTransaction(url: string): Promise<bigint> {
  const [row] = await query<{ xid: string }>(url, 'select pg_snapshot_xmax(pg_current_snapshot()) as xid');
  return BigInt(row!.xid);
}

async function burnTransactions(url: string): Promise<void> {
  await query(url, `do $$ begin for i in 1..500 loop perform pg_current_xact_id(); commit; end loop; end $$`);
}

/** Changes the database to the state in which a standby finds it when it takes over. */
async function failOver(url: string): Promise<void> {
  await query(url, 'truncate eventlog.server_run');
}

async function epochsOf(url: string): Promise<readonly number[]> {
  const rows = await query<{ epoch: number }>(url, 'select epoch from eventlog.epochs order by 1');
  return rows.map(({ epoch }) => epoch);
}

function warningsOfEpochs(): () => readonly Error[] {
  const warnings: Error[] = [];
  const hear = (warning: Error): void => {
    if ('code' in warning && warning.code === 'new-epoch') warnings.push(warning);
  };
  process.on('warning', hear);
  onTestFinished(() => void process.off('warning', hear));
  return () => warnings;
}

function idsOf(events: readonly DeliverableEvent[]): readonly string[] {
  return events.map(({ id }) => id);
}
