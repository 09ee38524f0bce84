// @module-tag postgres
import type { ActionRecord, KeyRecord } from '@framework/core/adapter';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { randomUUID } from 'node:crypto';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { keyClause, keyValues } from '../src/write/write-statement.js';
import { allSlots } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { EventWriter } from './fixtures/event-writer.js';
import { frameworkMigrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

const releasedBefore = ['0000_eventlog', '0001_delivery', '0002_idempotency_keys'];
const beforeMove = ['0003_history', '0004_attempts', '0005_handler_keys', '0006_place_handler_keys'];
const move = '0010_move_handler_keys';
const patience = { timeout: 30_000, interval: 20 };
const actionOf = 'select action_id from eventlog.idempotency_keys where key = $1';
/** Inserts a key as the previous release did; returns a row if it was free. */
const insertAsBefore = `
  insert into eventlog.idempotency_keys as held
    (key, principal, namespace, action_id, action_name, fingerprint, result, expires_date)
  select $1, 'alice', 'test', gen_random_uuid(), 'Write', 'f', null, now() + interval '1 day'
  on conflict (key, principal, namespace) do update set action_id = excluded.action_id,
    action_name = excluded.action_name, fingerprint = excluded.fingerprint, result = excluded.result,
    created_date = excluded.created_date, expires_date = excluded.expires_date
  where held.expires_date <= now() returning 1`;
const leaseMs = 60_000;
const handler = 'notify';
const everywhere = allSlots.map((slot) => ({ handler, slot }));

interface Journal {
  readonly entries: readonly { readonly tag: string }[];
}

describe('a database of the previous release', () => {
  test('is migrated in place, and delivery continues without repeats or loss', async () => {
    const { url, restIds, blockedId } = await filledDatabase();
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const { store } = registry.deliveries()[0]!;

    // The whole state of the handler is there, under its former name.
    expect(await store.cursors.register([{ name: handler, aliases: [], startFrom: 'now' }])).toEqual([
      handler,
    ]);
    expect(await store.cursors.find(handler)).toBe(handler);
    expect(await query(url, 'select key from eventlog.idempotency_keys')).toEqual([{ key: 'k-1' }]);
    expect(await store.cursors.lag()).toMatchObject([
      { handler, pendingCount: restIds.length, blockedCount: 1, deadCount: 0 },
    ]);

    const { leases } = await store.leases.renew('new', [handler], leaseMs);
    expect(leases).toHaveLength(allSlots.length);
    const cursors = await store.cursors.load(allSlots);
    expect(new Set(cursors.map(({ cursor }) => cursor)).size).toBe(1);
    const { events, next } = await store.log.read(allSlots, cursors[0]!.cursor, 100);
    expect(events.map(({ id }) => id)).toEqual(restIds);
    expect(await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })))).toEqual([]);
    expect(await store.blocked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: blockedId } }]);
    const newIds = await (await EventWriter.connect(url)).write('a', 7);
    expect((await store.log.read(allSlots, next, 100)).events.map(({ id }) => id)).toEqual(newIds);
  });

  test('gains the new index of epochs and loses the old one', async () => {
    const { url } = await filledDatabase();
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    await vi.waitFor(
      async () => {
        expect(await indexesOf(url)).toEqual([{ name: 'events_history_idx', valid: true }]);
      },
      { timeout: 30_000, interval: 50 },
    );
  });

  test('gives its slots to new processes, and no longer to old ones, once it is migrated', async () => {
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
    // Like the renewal of an old process: it gets nothing, drops what it had, and gets nothing later.
    expect(await query(url, `select slot from eventlog.renew_leases('old', '60 seconds')`)).toEqual([]);
    const { leases } = await store.leases.renew('new', [handler], leaseMs);
    expect(leases).toHaveLength(allSlots.length);
    expect(leases.some(({ abandoned }) => abandoned)).toBe(false);
    expect(await query(url, `select slot from eventlog.renew_leases('old', '60 seconds')`)).toEqual([]);
    expect((await store.leases.renew('new', [handler], leaseMs)).leases).toEqual(leases);
  });

  test('has the slots of a vanished process taken over as abandoned', async () => {
    const { url } = await filledDatabase();
    await query(url, `select slot from eventlog.renew_leases('old', '300 milliseconds')`);
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const { store } = registry.deliveries()[0]!;
    const leases = await vi.waitFor(async () => {
      const renewal = await store.leases.renew('new', [handler], leaseMs);
      expect(renewal.leases).toHaveLength(allSlots.length);
      return renewal.leases;
    }, 30_000);
    expect(leases.every(({ abandoned }) => abandoned)).toBe(true);
  });

  test('begins a new epoch if it was restored on another server before the migration', async () => {
    const { url, restIds } = await filledDatabase();
    // The transaction numbers of the original server were far higher.
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

  test("keeps handlers' keys apart from clients' keys, including those that its old processes still write", async () => {
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
    // Neither version executes again what the other has executed, and clients of the present version cannot use that namespace
    // for a key.
    expect(await writeKeyOfNow(url, { key: mine!, namespace: 'test#handlers' })).toBe(false);
    expect(await writeKeyOfNow(url, { key: taken!, namespace: 'test#handlers' })).toBe(true);
    expect(await writeKeyAsBefore(url, taken!)).toBe(false);
    expect(await writeKeyOfNow(url, { key: foreign!, namespace: 'test' })).toBe(true);
    expect(await writeKeyAsBefore(url, foreign!)).toBe(true);
  });

  test("continues to accept events and keys while handlers' keys are moved", async () => {
    const { url } = await filledDatabase();
    const [ofHandler = ''] = keysAt('before');
    await writeKeyAsBefore(url, ofHandler);
    await applyOf(url, [...releasedBefore, ...beforeMove]);
    const holder = await holdKey(url, ofHandler);
    const ready = openRegistry([{ group: 0, member: 0, url }], {}).ready();
    await moveWaits(url);
    const writer = new pg.Client({ connectionString: url, statement_timeout: 1_000 });
    await writer.connect();
    onTestFinished(() => writer.end());
    await writer.query(
      `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, headers, started_date)
       values (gen_random_uuid(), gen_random_uuid(), 0, 'test', 'Write', '{}', 'alice', '{}', now())`,
    );
    await writer.query(
      `insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
       values ('order/1', 'alice', 'test', gen_random_uuid(), 'Write', 'f', now() + interval '1 day')`,
    );
    await holder.query('rollback');
    await ready;
    expect(await namespacesOf(url, ofHandler)).toEqual(['test#handlers']);
  });

  test("repeats no action of its old processes' handlers before the keys are moved", async () => {
    const { url } = await filledDatabase();
    const [[held = ''], [executed = '']] = [keysAt('held'), keysAt('executed')];
    for (const key of [held, executed]) expect(await writeKeyAsBefore(url, key)).toBe(true);
    await applyOf(url, [...releasedBefore, ...beforeMove]);
    const holder = await holdKey(url, held);
    const ready = openRegistry([{ group: 0, member: 0, url }], {}).ready();
    await moveWaits(url);
    expect(await writeKeyAsBefore(url, executed)).toBe(false);
    expect(await namespacesOf(url, executed)).toEqual(['test']);
    await holder.query('rollback');
    await ready;
    expect(await writeKeyAsBefore(url, executed)).toBe(false);
    expect(await namespacesOf(url, executed)).toEqual(['test#handlers']);
  });

  test("repeats no action of its old processes' handlers while a key is being moved", async () => {
    const { url } = await filledDatabase();
    const [executed = ''] = keysAt('executed');
    expect(await writeKeyAsBefore(url, executed)).toBe(true);
    await applyOf(url, [...releasedBefore, ...beforeMove]);
    const mover = new pg.Client({ connectionString: url });
    await mover.connect();
    onTestFinished(() => mover.end());
    await mover.query('begin');
    for (const statement of await statementsOf(move)) {
      const { rows } = await mover.query<{ unfinished?: boolean }>(statement);
      if (rows[0]?.unfinished === true) break;
    }
    const free = writeKeyAsBefore(url, executed);
    await vi.waitFor(async () => expect(await waitingForMover(url)).toHaveLength(1), patience);
    await mover.query('commit');
    expect(await free).toBe(false);
    expect(await namespacesOf(url, executed)).toEqual(['test#handlers']);
  });

  test('abandons a step that deadlocks with an old process, which does not fail', async () => {
    const { url } = await filledDatabase();
    // The keys are in the order in which a step takes them.
    const [first, second] = ['0', 'f'].map(
      (digit) => `${handler}/${randomUUID().replaceAll(/[^-]/g, digit)}/pay`,
    );
    for (const key of [first!, second!]) expect(await writeKeyAsBefore(url, key)).toBe(true);
    await applyOf(url, [...releasedBefore, ...beforeMove]);
    const old = new pg.Client({ connectionString: url });
    await old.connect();
    onTestFinished(() => old.end());
    await old.query('begin');
    expect((await old.query(insertAsBefore, [second])).rowCount).toBe(0);
    const ready = openRegistry([{ group: 0, member: 0, url }], {}).ready();
    await moveWaits(url);
    expect((await old.query(insertAsBefore, [first])).rowCount).toBe(0);
    await old.query('commit');
    await ready;
    const deadlocks =
      'select deadlocks::int as count from pg_stat_database where datname = current_database()';
    expect(await query(url, deadlocks)).toEqual([{ count: 0 }]);
    for (const key of [first!, second!]) expect(await namespacesOf(url, key)).toEqual(['test#handlers']);
  });

  test("moves handlers' keys in steps, and resumes with the next step after an interruption", async () => {
    const { url } = await filledDatabase();
    const keyCount = 2_500;
    await query(
      url,
      `insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
       select '${handler}/' || gen_random_uuid() || '/pay', 'alice', 'test', gen_random_uuid(), 'Write', 'f', now() + interval '1 day'
       from generate_series(1, ${keyCount})`,
    );
    const [last] = await query<{ key: string }>(
      url,
      `select key from eventlog.idempotency_keys where key like '${handler}/%' order by key desc limit 1`,
    );
    await applyOf(url, [...releasedBefore, ...beforeMove]);
    const holder = await holdKey(url, last!.key);
    const interrupted = openRegistry([{ group: 0, member: 0, url }], {});
    const ready = interrupted.ready().catch(() => 'interrupted');
    await moveWaits(url);
    const movedCount = await countIn(url, 'test#handlers');
    expect(movedCount).toBeGreaterThan(0);
    expect(movedCount).toBeLessThan(keyCount);
    await interrupted.close();
    expect(await ready).toBe('interrupted');
    expect(await countIn(url, 'test#handlers')).toBe(movedCount);
    await holder.query('rollback');
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    expect(await countIn(url, 'test#handlers')).toBe(keyCount);
    expect(await query(url, `select to_regclass('eventlog.key_move')::text as found`)).toEqual([
      { found: null },
    ]);
  });

  test("is migrated even if a handler's key exists among those of both clients and handlers", async () => {
    const { url } = await filledDatabase();
    const [twice = ''] = keysAt('twice');
    await writeKeyAsBefore(url, twice);
    await applyOf(url, [...releasedBefore, ...beforeMove.slice(0, 3)]);
    await writeKeyOfNow(url, { key: twice, namespace: 'test#handlers' });
    // As an earlier text of these migrations did.
    await query(
      url,
      `create function eventlog.place_key_of_release_before() returns trigger language plpgsql as 'begin return new; end';
       create trigger key_of_release_before before insert on eventlog.idempotency_keys for each row
         execute function eventlog.place_key_of_release_before()`,
    );
    const [later] = await query(url, `${actionOf} and namespace = 'test#handlers'`, [twice]);
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    expect(await query(url, actionOf, [twice])).toEqual([later]);
    expect(await namespacesOf(url, twice)).toEqual(['test#handlers']);
    const [after = ''] = keysAt('after');
    expect(await writeKeyAsBefore(url, after)).toBe(true);
    expect(await namespacesOf(url, after)).toEqual(['test#handlers']);
  });
});

/** A database as the previous release left it: six events, the first three passed, one of those blocked. */
async function filledDatabase(): Promise<{
  readonly url: string;
  readonly restIds: readonly string[];
  readonly blockedId: string;
}> {
  const { url } = await emptyDatabase();
  await applyOf(url, releasedBefore);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query('select eventlog.create_partitions(3)');
  const writer = await EventWriter.connect(url);
  const [blockedId = ''] = await writer.write('a', 1, 2, 3);
  await client.query(`
    insert into eventlog.handlers (handler) values ('${handler}');
    insert into eventlog.cursors (handler, slot, snapshot)
      select '${handler}', slot, pg_current_snapshot() from eventlog.slots;
    insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
      values ('k-1', 'alice', 'test', gen_random_uuid(), 'Write', 'f', now() + interval '1 day');
    with blocked as (
      insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal, event_type,
        event, attempts, dead, suspect)
      select '${handler}', id, slot, model_name, model_id, model_version, ordinal, event_type,
        jsonb_build_object('id', id, 'slot', slot, 'namespace', namespace, 'actionId', action_id, 'actionName', action_name,
          'actionParams', action_params, 'principal', principal, 'ordinal', ordinal, 'modelId', model_id,
          'modelName', model_name, 'modelVersion', model_version, 'type', event_type, 'payload', payload,
          'headers', headers, 'startedDate', started_date, 'createdDate', created_date), 1, false, false
      from eventlog.events where id = '${blockedId}'
      returning slot, handler, model_name, model_id)
    select eventlog.settle_parked_models(array_agg(slot), array_agg(handler), array_agg(model_name), array_agg(model_id))
    from blocked`);
  const restIds = await writer.write('a', 4, 5, 6);
  await client.end();
  return { url, restIds, blockedId };
}

/** Keys of the previous release, the first two of which are those of handlers. */
function keysAt(when: string): readonly string[] {
  return [
    `${handler}/${randomUUID()}/${when}`,
    `to/notify/${randomUUID()}/${when}`,
    `to/notify/${randomUUID()}`,
    `nobody/${randomUUID()}/${when}`,
    `order/${when}`,
  ];
}

/** Inserts a key as the previous release did; returns whether it was free. */
async function writeKeyAsBefore(url: string, key: string): Promise<boolean> {
  return (await query(url, insertAsBefore, [key])).length === 1;
}

/** Inserts a key as the adapter does; returns whether it was free. */
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

/** Applies these migrations of the framework, as the release that had them did. */
async function applyOf(url: string, tags: readonly string[]): Promise<void> {
  const migrationsFolder = await folderOf(tags);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await migrate(drizzle(client), {
    migrationsFolder,
    migrationsSchema: 'eventlog',
    migrationsTable: 'migrations',
  });
  await client.end();
}

/** A folder with those migrations of the framework. */
async function folderOf(tags: readonly string[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'release-before-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await cp(frameworkMigrationsFolder, folder, { recursive: true });
  const path = join(folder, 'meta', '_journal.json');
  const journal = JSON.parse(await readFile(path, 'utf8')) as Journal;
  const entries = journal.entries.filter(({ tag }) => tags.includes(tag));
  expect(entries).toHaveLength(tags.length);
  await writeFile(path, JSON.stringify({ ...journal, entries }));
  return folder;
}

/** The statements of a migration of the framework. */
async function statementsOf(tag: string): Promise<readonly string[]> {
  const text = await readFile(join(frameworkMigrationsFolder, `${tag}.sql`), 'utf8');
  return text.split('--> statement-breakpoint');
}

/** A session whose transaction holds a key's row. */
async function holdKey(url: string, key: string): Promise<pg.Client> {
  const holder = new pg.Client({ connectionString: url });
  await holder.connect();
  onTestFinished(() => holder.end());
  await holder.query('begin');
  await holder.query('select from eventlog.idempotency_keys where key = $1 for update', [key]);
  return holder;
}

/** Waits until the migration waits for another transaction to end, which it does again and again. */
async function moveWaits(url: string): Promise<void> {
  const waiting = `select pid from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'framework migrations%'
    and query like '%eventlog.idempotency_keys%' and datname = current_database()`;
  await vi.waitFor(async () => expect(await query(url, waiting)).toHaveLength(1), patience);
}

/** The sessions that wait for the end of another transaction while they insert a key. */
function waitingForMover(url: string): Promise<readonly object[]> {
  return query(
    url,
    `select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%insert into eventlog.idempotency_keys as held%'
       and datname = current_database()`,
  );
}

async function namespacesOf(url: string, key: string): Promise<readonly string[]> {
  const text = 'select namespace from eventlog.idempotency_keys where key = $1';
  return (await query<{ namespace: string }>(url, text, [key])).map(({ namespace }) => namespace);
}

async function countIn(url: string, namespace: string): Promise<number> {
  const text = 'select count(*)::int as count from eventlog.idempotency_keys where namespace = $1';
  return (await query<{ count: number }>(url, text, [namespace]))[0]!.count;
}

/** The indexes of the whole log that delivery reads with. */
function indexesOf(url: string): Promise<readonly object[]> {
  return query(
    url,
    `select c.relname as name, i.indisvalid as valid from pg_index i join pg_class c on c.oid = i.indexrelid
     where i.indrelid = 'eventlog.events'::regclass and c.relname in ('events_history_idx', 'events_delivery_idx')`,
  );
}
