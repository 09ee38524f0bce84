import { randomUUID } from 'node:crypto';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ActionRecord, KeyRecord } from '@framework/core';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import pg from 'pg';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { frameworkMigrationsFolder } from '../src/framework-migrations-folder.js';
import { keyClause, keyValues } from '../src/idempotency/key-clause.js';
import { allSlots } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { EventWriter } from './fixtures/event-writer.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

const releasedBefore = ['0000_eventlog', '0001_delivery', '0002_idempotency_keys'];
const leaseMs = 60_000;
const handler = 'notify';
const everywhere = allSlots.map((slot) => ({ handler, slot }));

interface Journal {
  readonly entries: readonly { readonly tag: string }[];
}

describe('a database of the release before', () => {
  it('is migrated as it is, and delivered on without repeats or loss', async () => {
    const { url, restIds, parkedId } = await filledDatabase();
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const { store } = registry.deliveries()[0]!;

    // All that it had is there, under the name that it had.
    expect(await store.cursors.register([{ name: handler, aliases: [], startFrom: 'now' }])).toEqual([
      handler,
    ]);
    expect(await store.cursors.find(handler)).toBe(handler);
    expect(await query(url, 'select key from eventlog.idempotency_keys')).toEqual([{ key: 'k-1' }]);
    expect(await store.cursors.lag()).toMatchObject([
      { handler, pendingCount: restIds.length, parkedCount: 1, deadCount: 0 },
    ]);

    const { leases } = await store.leases.renew('new', [handler], leaseMs);
    expect(leases).toHaveLength(allSlots.length);
    const cursors = await store.cursors.load(allSlots);
    expect(new Set(cursors.map(({ cursor }) => cursor)).size).toBe(1);
    const { events, next } = await store.log.read(allSlots, cursors[0]!.cursor, 100);
    expect(events.map(({ id }) => id)).toEqual(restIds);
    expect(await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })))).toEqual([]);
    expect(await store.parked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: parkedId } }]);
    const newIds = await (await EventWriter.connect(url)).write('a', 7);
    expect((await store.log.read(allSlots, next, 100)).events.map(({ id }) => id)).toEqual(newIds);
  });

  it('gets the index of epochs beside everything else, and loses the one before', async () => {
    const { url } = await filledDatabase();
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    await vi.waitFor(
      async () => {
        expect(await indexesOf(url)).toEqual([{ name: 'events_history_idx', valid: true }]);
      },
      { timeout: 20_000, interval: 50 },
    );
  });

  it('is worked on by its old processes no more, and by new ones when those know it', async () => {
    const { url } = await filledDatabase();
    const before = await query<{ slot: number }>(
      url,
      `select slot from eventlog.renew_leases('old', '60 seconds')`,
    );
    expect(before).toHaveLength(allSlots.length);
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const { store } = registry.deliveries()[0]!;
    expect((await store.leases.renew('new', [handler], leaseMs)).leases).toEqual([]);
    // As an old process renews: it is given nothing, drops what it had, and gets nothing later.
    expect(await query(url, `select slot from eventlog.renew_leases('old', '60 seconds')`)).toEqual([]);
    const { leases } = await store.leases.renew('new', [handler], leaseMs);
    expect(leases).toHaveLength(allSlots.length);
    expect(leases.some(({ abandoned }) => abandoned)).toBe(false);
    expect(await query(url, `select slot from eventlog.renew_leases('old', '60 seconds')`)).toEqual([]);
    expect((await store.leases.renew('new', [handler], leaseMs)).leases).toEqual(leases);
  });

  it('whose process vanished has its slots taken over as abandoned', async () => {
    const { url } = await filledDatabase();
    await query(url, `select slot from eventlog.renew_leases('old', '300 milliseconds')`);
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const { store } = registry.deliveries()[0]!;
    const leases = await vi.waitFor(async () => {
      const renewal = await store.leases.renew('new', [handler], leaseMs);
      expect(renewal.leases).toHaveLength(allSlots.length);
      return renewal.leases;
    }, 5_000);
    expect(leases.every(({ abandoned }) => abandoned)).toBe(true);
  });

  it('that was restored on another server before it was migrated begins a new epoch', async () => {
    const { url, restIds } = await filledDatabase();
    // The numbers of the server that it comes from were far higher.
    await query(
      url,
      `update eventlog.events set xid = (xid::text::bigint + 1000000000)::text::xid8;
       update eventlog.cursors set snapshot = format('%1$s:%1$s:',
         pg_snapshot_xmax(snapshot)::text::bigint + 1000000000)::pg_snapshot`,
    );
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const { store } = registry.deliveries()[0]!;
    const newIds = await (await EventWriter.connect(url)).write('a', 7);
    let { cursor } = (await store.cursors.load(allSlots))[0]!;
    const read: string[] = [];
    for (let more = true; more;) {
      const batch = await store.log.read(allSlots, cursor, 100);
      read.push(...batch.events.map(({ id }) => id));
      ({ next: cursor, more } = batch);
    }
    expect(read).toEqual([...restIds, ...newIds]);
  });

  it('has the keys of handlers apart from those of clients, also those that its old processes go on writing', async () => {
    const { url } = await filledDatabase();
    await query(url, `insert into eventlog.handlers (handler) values ('to/notify')`);
    const before = keysAt('before');
    for (const key of before) await writeKeyAsBefore(url, key);
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const after = keysAt('after');
    for (const key of after) expect(await writeKeyAsBefore(url, key)).toBe(true);
    const rows = await query(
      url,
      `select key, namespace, source, expires_date > now() + interval '300 days' as kept
       from eventlog.idempotency_keys where key <> 'k-1' order by key collate "C"`,
    );
    const ofHandlers = new Set([before[0], before[1], after[0], after[1]]);
    expect(rows).toEqual(
      [...before, ...after].toSorted().map((key) => {
        const isOfHandler = ofHandlers.has(key);
        return { key, namespace: isOfHandler ? 'test#handlers' : 'test', source: null, kept: isOfHandler };
      }),
    );

    const [mine, taken, foreign] = [after[0], ...keysAt('later')];
    // What one has executed, the other does not execute again; and a client of now gets no key into that namespace.
    expect(await writeKeyOfNow(url, { key: mine!, namespace: 'test#handlers' })).toBe(false);
    expect(await writeKeyOfNow(url, { key: taken!, namespace: 'test#handlers' })).toBe(true);
    expect(await writeKeyAsBefore(url, taken!)).toBe(false);
    expect(await writeKeyOfNow(url, { key: foreign!, namespace: 'test' })).toBe(true);
    expect(await writeKeyAsBefore(url, foreign!)).toBe(true);
  });
});

/** A database as the release before left it: six events, the first three passed, one of those parked. */
async function filledDatabase(): Promise<{
  readonly url: string;
  readonly restIds: readonly string[];
  readonly parkedId: string;
}> {
  const { url } = await emptyDatabase();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await migrate(drizzle(client), {
    migrationsFolder: await folderOfReleaseBefore(),
    migrationsSchema: 'eventlog',
    migrationsTable: 'migrations',
  });
  await client.query('select eventlog.create_partitions(3)');
  const writer = await EventWriter.connect(url);
  const [parkedId = ''] = await writer.write('a', 1, 2, 3);
  await client.query(`
    insert into eventlog.handlers (handler) values ('${handler}');
    insert into eventlog.cursors (handler, slot, snapshot)
      select '${handler}', slot, pg_current_snapshot() from eventlog.slots;
    insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
      values ('k-1', 'alice', 'test', gen_random_uuid(), 'Write', 'f', now() + interval '1 day');
    with parked as (
      insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal, event_type,
        event, attempts, dead, suspect)
      select '${handler}', id, slot, model_name, model_id, model_version, ordinal, event_type,
        jsonb_build_object('id', id, 'slot', slot, 'namespace', namespace, 'actionId', action_id, 'actionName', action_name,
          'actionParams', action_params, 'principal', principal, 'ordinal', ordinal, 'modelId', model_id,
          'modelName', model_name, 'modelVersion', model_version, 'type', event_type, 'payload', payload,
          'headers', headers, 'startedDate', started_date, 'createdDate', created_date), 1, false, false
      from eventlog.events where id = '${parkedId}'
      returning slot, handler, model_name, model_id)
    select eventlog.settle_parked_models(array_agg(slot), array_agg(handler), array_agg(model_name), array_agg(model_id))
    from parked`);
  const restIds = await writer.write('a', 4, 5, 6);
  await client.end();
  return { url, restIds, parkedId };
}

/** The first two are those of handlers. */
function keysAt(when: string): readonly string[] {
  return [
    `${handler}/${randomUUID()}/${when}`,
    `to/notify/${randomUUID()}/${when}`,
    `to/notify/${randomUUID()}`,
    `nobody/${randomUUID()}/${when}`,
    `order/${when}`,
  ];
}

/** Inserts a key as the release before does; whether it was free. */
async function writeKeyAsBefore(url: string, key: string): Promise<boolean> {
  const rows = await query(
    url,
    `insert into eventlog.idempotency_keys as held
       (key, principal, namespace, action_id, action_name, fingerprint, result, expires_date)
     select $1, 'alice', 'test', gen_random_uuid(), 'Write', 'f', null, now() + interval '1 day'
     on conflict (key, principal, namespace) do update set action_id = excluded.action_id,
       action_name = excluded.action_name, fingerprint = excluded.fingerprint, result = excluded.result,
       created_date = excluded.created_date, expires_date = excluded.expires_date
     where held.expires_date <= now() returning 1`,
    [key],
  );
  return rows.length === 1;
}

/** Inserts a key as the adapter does; whether it was free. */
async function writeKeyOfNow(
  url: string,
  { key, namespace }: { readonly key: string; readonly namespace: string },
): Promise<boolean> {
  const action = { id: randomUUID(), name: 'Write' } as ActionRecord;
  const record: KeyRecord = {
    key,
    principal: 'alice',
    namespace,
    fingerprint: 'f',
    result: undefined,
    lifetimeMs: 86_400_000,
  };
  const rows = await query(url, keyClause(1), [...keyValues(action, record)]);
  return rows.length === 1;
}

/** The framework's migrations up to the release before. */
async function folderOfReleaseBefore(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'release-before-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await cp(frameworkMigrationsFolder, folder, { recursive: true });
  const path = join(folder, 'meta', '_journal.json');
  const journal = JSON.parse(await readFile(path, 'utf8')) as Journal;
  const entries = journal.entries.filter(({ tag }) => releasedBefore.includes(tag));
  expect(entries).toHaveLength(releasedBefore.length);
  await writeFile(path, JSON.stringify({ ...journal, entries }));
  return folder;
}

/** The indexes of the whole log by which delivery reads. */
function indexesOf(url: string): Promise<readonly object[]> {
  return query(
    url,
    `select c.relname as name, i.indisvalid as valid from pg_index i join pg_class c on c.oid = i.indexrelid
     where i.indrelid = 'eventlog.events'::regclass and c.relname in ('events_history_idx', 'events_delivery_idx')`,
  );
}
