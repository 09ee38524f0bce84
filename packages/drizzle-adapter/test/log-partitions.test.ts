// @module-tag postgres
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import type { PostgresWarning } from '../src/index.js';
import { openStore } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { VirtualTime } from './fixtures/virtual-time.js';

/** What the server says instead of searching the default partition. */
const unsearched = /default partition "events_default" is implied by existing constraints/;

test('months to come are attached to a log whose default partition is filled, without a search under a lock', async () => {
  const { url } = await openStore();
  const toCome = await monthsToCome(url, await dropPartitions(url));
  await fillDefault(url, "'2020-01-15'", 10_000);
  const client = new pg.Client(url);
  await client.connect();
  onTestFinished(() => client.end());
  const said: string[] = [];
  client.on('notice', ({ message }) => said.push(message ?? ''));
  await client.query(`set client_min_messages = 'debug1'; set lc_messages = 'C'`);
  const create = async (): Promise<boolean> =>
    (await client.query('select eventlog.create_partitions(3) as more')).rows[0].more;
  expect([await create(), await create(), await create()]).toEqual([true, true, false]);
  expect(await partitionsIn(url)).toEqual(toCome);
  expect(said.filter((message) => unsearched.test(message))).toHaveLength(toCome.length);
  expect(await create()).toBe(false);
  // Events of all months can still be written.
  await query(url, `${insertEvent('now()', 1)} union all ${eventRow("'2100-01-15'", 1)}`);
});

test('delivery attaches the months to come, and leaves this month to a default partition that is filled', async () => {
  const { store, url } = await openStore();
  const toCome = await monthsToCome(url, await dropPartitions(url));
  await fillDefault(url, 'now()', 10_000);
  await store.partitions.create();
  expect(await partitionsIn(url)).toEqual(toCome);
});

test('attaching months that is interrupted refuses no event of the next week, or of months that are attached', async () => {
  const { url } = await openStore();
  const last = (await partitionsIn(url)).at(-1);
  await fillDefault(url, "'2020-01-15'", 10_000);
  await query(url, `drop table eventlog.${last}`);
  const interrupted = 'select eventlog.create_partitions(3) as more';
  expect(await query(url, interrupted)).toEqual([{ more: true }]);
  await query(
    url,
    `${insertEvent("now() + interval '7 days'", 1)} union all ${eventRow("now() + interval '1 month'", 1)}`,
  );
  await dropPartitions(url);
  await query(url, 'alter table eventlog.events_default drop constraint events_default_past');
  expect(await query(url, interrupted)).toEqual([{ more: true }]);
  await query(url, insertEvent("now() + interval '7 days'", 1));
});

test('a default partition that contains events of months to come stays in use, and takes further events', async () => {
  const { store, url } = await openStore();
  await dropPartitions(url);
  await fillDefault(url, "now() + interval '40 days'", 10_000);
  await store.partitions.create();
  expect(await partitionsIn(url)).toEqual([]);
  await query(url, insertEvent("now() + interval '40 days'", 1));
});

test('a month that could not be attached, because the default partition has events of it, is reported at the start', async () => {
  const { url } = await emptyDatabase();
  const started = await warningsAtStart(url);
  expect(started).toEqual([]);
  const [thisMonth] = await dropPartitions(url);
  await query(url, insertEvent('now()', 1));
  const message = expect.stringContaining(
    `${thisMonth}): eventlog.events_default contains its events`,
  ) as string;
  expect(await warningsAtStart(url)).toMatchObject([{ kind: 'log-partitions', message }]);
});

test.each([
  { zone: 'Pacific/Kiritimati', now: '2090-03-31T20:00:00Z', first: '2090_03' },
  { zone: 'Pacific/Pago_Pago', now: '2090-04-01T05:00:00Z', first: '2090_04' },
])(
  'months are those of UTC in sessions in $zone, where it is another month',
  async ({ zone, now, first }) => {
    const database = await emptyDatabase();
    const { url } = database;
    const time = await VirtualTime.begin(database, new Date(now));
    onTestFinished(() => time.end());
    await query(url, `alter database ${database.database} set timezone = '${zone}'`);
    // The functions of the log keep real time, so that it lacks the partition of this month.
    const message = expect.stringContaining(`(events_${first}, `) as string;
    expect(await warningsAtStart(url)).toMatchObject([{ kind: 'log-partitions', message }]);
    const create = 'eventlog.create_partitions(integer)';
    await query(url, `alter function ${create} set search_path = virtual_time, pg_catalog, pg_temp`);
    await dropPartitions(url);
    await query(url, 'select eventlog.create_partitions(3)');
    const months = await monthsIn(url);
    expect(months[0]).toBe(`events_${first} from ${first.replace('_', '-')}-01 00:00:00+00`);
    expect(months).toHaveLength(4);
  },
);

/** The partitions, each with the instant in UTC from which on it takes events. */
async function monthsIn(url: string): Promise<readonly string[]> {
  const inUtc = new URL(url);
  inUtc.searchParams.set('options', '-c timezone=UTC');
  const rows = await query<{ month: string }>(
    inUtc.href,
    `select relname || ' from ' || split_part(pg_get_expr(relpartbound, pg_class.oid), $$'$$, 2) as month
     from pg_inherits join pg_class on pg_class.oid = inhrelid
     where inhparent = 'eventlog.events'::regclass and relname <> 'events_default' order by relname`,
  );
  return rows.map(({ month }) => month);
}

async function warningsAtStart(url: string): Promise<readonly PostgresWarning[]> {
  const warnings: PostgresWarning[] = [];
  const registry = openRegistry([{ group: 0, member: 0, url }], {
    onWarning: (warning) => void warnings.push(warning),
  });
  await registry.ready();
  await registry.close();
  return warnings;
}

async function partitionsIn(url: string): Promise<readonly string[]> {
  const rows = await query<{ name: string }>(
    url,
    `select relname as name from pg_inherits join pg_class on pg_class.oid = inhrelid
     where inhparent = 'eventlog.events'::regclass and relname <> 'events_default' order by relname`,
  );
  return rows.map(({ name }) => name);
}

/** Drops the partitions of all months, and returns their names. */
async function dropPartitions(url: string): Promise<readonly string[]> {
  const names = await partitionsIn(url);
  await query(url, `drop table ${names.map((name) => `eventlog.${name}`).join(', ')}`);
  return names;
}

/** Those of the partitions whose months begin in more than a week. */
async function monthsToCome(url: string, names: readonly string[]): Promise<readonly string[]> {
  const [row] = await query<{ soon: string }>(
    url,
    `select 'events_' || to_char((now() + interval '7 days') at time zone 'UTC', 'YYYY_MM') as soon`,
  );
  return names.filter((name) => name > row!.soon);
}

/** Writes 1 kB for each event. */
async function fillDefault(url: string, createdDate: string, count: number): Promise<void> {
  await query(url, insertEvent(createdDate, count));
  const [row] = await query<{ size: string }>(
    url,
    `select pg_relation_size('eventlog.events_default') as size`,
  );
  expect(Number(row!.size)).toBeGreaterThan(8_388_608);
}

function insertEvent(createdDate: string, count: number): string {
  return `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, headers,
    started_date, slot, created_date) ${eventRow(createdDate, count)}`;
}

function eventRow(createdDate: string, count: number): string {
  return `select gen_random_uuid(), gen_random_uuid(), 0, 'test', 'Write', '{}'::jsonb, repeat('x', 1000), '{}'::jsonb, now(), 0,
    (${createdDate})::timestamptz from generate_series(1, ${count})`;
}
