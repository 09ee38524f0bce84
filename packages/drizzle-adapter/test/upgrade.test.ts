import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import pg from 'pg';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { frameworkMigrationsFolder } from '../src/framework-migrations-folder.js';
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
