// @module-tag postgres
import type { ShardStatus } from '@framework/core/adapter';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { migrateShards } from '../src/index.js';
import { ChildProgram } from './fixtures/child-program.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { folderOf } from './fixtures/migration-folder.js';
import { frameworkMigrationsFolder, migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const processCount = 10;
const patience = { timeout: 30_000, interval: 100 };
/** The number of the framework's migrations. */
const migrationCount = readMigrationFiles({ migrationsFolder: frameworkMigrationsFolder }).length;

describe('migrations', () => {
  test('are applied once when many registries open concurrently', async () => {
    const [one, other] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    const registries = Array.from({ length: processCount }, () =>
      openRegistry([
        { group: 0, member: 0, url: one.url },
        { group: 1, member: 0, url: other.url },
      ]),
    );
    await Promise.all(registries.map((registry) => registry.ready()));
    for (const { url } of [one, other])
      expect(await applied(url)).toEqual({ framework: migrationCount, application: 1 });
  });

  test.each(['repeatable read', 'serializable'])(
    'are applied once by concurrent registries when transactions default to %s',
    async (level) => {
      const { url, database } = await emptyDatabase();
      await query(url, `alter database ${database} set default_transaction_isolation = '${level}'`);
      const registries = Array.from({ length: processCount }, () =>
        openRegistry([{ group: 0, member: 0, url }]),
      );
      await Promise.all(registries.map((registry) => registry.ready()));
      expect(await applied(url)).toEqual({ framework: migrationCount, application: 1 });
    },
  );

  test('are applied once when many processes start concurrently', async () => {
    const { url } = await emptyDatabase();
    const program = await ChildProgram.of('migrating-process.ts');
    onTestFinished(() => program.remove());
    const runs = Array.from({ length: processCount }, () => program.run(url, migrationsFolder));
    expect(await Promise.all(runs)).toEqual(Array.from({ length: processCount }, () => 'ready'));
    expect(await applied(url)).toEqual({ framework: migrationCount, application: 1 });
  });

  test('of the application are applied once to a database that holds several shards', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([
      { group: 0, member: 0, url },
      { group: 0, member: 1, url },
    ]).ready();
    await openRegistry([{ group: 0, member: 0, url }]).ready();
    expect(await applied(url)).toEqual({ framework: migrationCount, application: 1 });
  });

  test('of the application are omitted when there are none', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    expect(await query(url, `select to_regclass('accounts')::text as found`)).toEqual([{ found: null }]);
  });

  test('are left to a separate job on request, and the process waits for them', async () => {
    const { url } = await emptyDatabase();
    const registry = openRegistry([{ group: 0, member: 0, url }], { migrate: 'off' });
    const told = Promise.withResolvers<ShardStatus>();
    const ready = registry.ready(told.resolve);
    expect(await told.promise).toMatchObject({
      ready: false,
      reason: { kind: 'not-migrated', message: expect.stringContaining('migrateShards(') as string },
    });
    expect(await query(url, `select to_regclass('eventlog.events')::text as found`)).toEqual([
      { found: null },
    ]);
    await migrateShards(shardingConfig([{ group: 0, member: 0, url }]), migrationsFolder);
    await ready;
    expect(await registry.status()).toMatchObject([{ ready: true }]);
  });

  test('run from a separate job, for every shard', async () => {
    const [one, other] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    const members = [
      { group: 0, member: 0, url: one.url },
      { group: 1, member: 0, url: other.url },
    ];
    await migrateShards(shardingConfig(members), migrationsFolder);
    for (const { url } of [one, other])
      expect(await applied(url)).toEqual({ framework: migrationCount, application: 1 });
  });

  test('that fail are reported, leave nothing half done, and are applied once they can succeed', async () => {
    const { url } = await emptyDatabase();
    // With the framework's migrations applied, a try is short, and so is the pause after it, which is ten times as long.
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    const folder = await folderOf('create table half_done (id int); select no_such_function()');
    const registry = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder: folder });
    const failure: unknown = await registry.ready().catch((error: unknown) => error);
    const text =
      /shard \(0, 0\) member-0-0 on .*: function no_such_function\(\) does not exist .*: correct the migration/;
    expect(failure).toMatchObject({
      code: 'no-usable-shard',
      message: expect.stringMatching(text) as string,
    });
    const [status] = await registry.status();
    const reason = { kind: 'migration-failed', cause: { cause: { code: '42883' } } };
    expect(status).toMatchObject({ ready: false, reason });
    expect(await query(url, `select to_regclass('half_done')::text as found`)).toEqual([{ found: null }]);
    await query(url, 'create function no_such_function() returns int language sql as $$ select 1 $$');
    await vi.waitFor(() => registry.ready(), patience);
    expect(await registry.status()).toMatchObject([{ ready: true }]);
  });

  test.each(['on-start', 'check'] as const)(
    'of the application that are missing are reported with their folder (migrate: %s)',
    async (migrate) => {
      const { url } = await emptyDatabase();
      const members = [{ group: 0, member: 0, url }];
      await migrateShards(shardingConfig(members));
      const registry = openRegistry(members, { migrate, migrationsFolder: '/no/such/folder' });
      await expect(registry.ready()).rejects.toMatchObject({ code: 'no-usable-shard' });
      const [status] = await registry.status();
      const message = expect.stringMatching(/from \/no\/such\/folder .*: pass the folder/) as string;
      expect(status).toMatchObject({ ready: false, reason: { kind: 'migration-failed', message } });
    },
  );

  test('of the application are not read by a process that leaves the schema alone', async () => {
    const { url } = await emptyDatabase();
    const members = [{ group: 0, member: 0, url }];
    await migrateShards(shardingConfig(members));
    const registry = openRegistry(members, { migrate: 'off', migrationsFolder: '/no/such/folder' });
    await registry.ready();
    expect(await registry.status()).toMatchObject([{ ready: true }]);
  });

  test("take as long as they need, however short the role's transaction timeouts are", async ({ skip }) => {
    const { url, database } = await emptyDatabase();
    const known = await query(url, `select from pg_settings where name = 'transaction_timeout'`);
    if (known.length === 0) skip('PostgreSQL 17 and newer have transaction_timeout');
    await query(url, `alter database ${database} set transaction_timeout = '1s'`);
    const folder = await folderOf('select pg_sleep(1.5)');
    await migrateShards(shardingConfig([{ group: 0, member: 0, url }]), folder);
    expect(await applied(url)).toEqual({ framework: migrationCount, application: 1 });
  });

  test('leave a busy table alone between attempts, even when many processes want to migrate it', async () => {
    const { url } = await emptyDatabase();
    await query(url, 'create table busy (id int)');
    const reader = new pg.Client(url);
    await reader.connect();
    onTestFinished(() => reader.end());
    await reader.query('begin; select from busy');
    const folder = await folderOf('alter table busy add column more text');
    const registries = [1, 2, 3].map(() =>
      openRegistry([{ group: 0, member: 0, url }], { migrationsFolder: folder }),
    );
    // The session that asks for the table, and the one that holds the lock of migrations.
    const state = async () => {
      const [row] = await query<{ asks: number | null; holds: number | null }>(
        url,
        `with locks as (select l.* from pg_locks l join pg_database d on d.oid = l.database and datname = current_database())
         select (select pid from locks where relation = 'busy'::regclass and not granted) as asks,
                (select pid from locks where locktype = 'advisory' and objid = 2970847106 and granted) as holds`,
      );
      return row!;
    };
    await vi.waitFor(async () => expect((await state()).asks).not.toBeNull(), patience);
    const { asks: first } = await state();
    const next = await vi.waitFor(
      async () => {
        const now = await state();
        expect(now.asks).not.toBe(first);
        return now;
      },
      { ...patience, interval: 10 },
    );
    expect(next).toEqual({ asks: null, holds: first });
    await reader.query('commit');
    await Promise.all(registries.map((registry) => registry.ready()));
    expect(await applied(url)).toEqual({ framework: migrationCount, application: 1 });
  });

  test('hold no table of a previous migration', async () => {
    const { url } = await emptyDatabase();
    await query(url, 'create table held (id int); create table rewritten (id int)');
    const holder = new pg.Client({ connectionString: url });
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query('begin; lock table held');
    const folder = await folderOf(
      'alter table rewritten add column name text',
      'alter table held add column name text',
    );
    const ready = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder: folder }).ready();
    await vi.waitFor(
      () => query(url, `set statement_timeout = '100ms'; insert into rewritten (name) values ('free')`),
      { timeout: 30_000, interval: 20 },
    );
    await holder.query('commit');
    await ready;
    const held = await query(url, `insert into held (name) values ('free') returning name`);
    expect(held).toEqual([{ name: 'free' }]);
  });

  test('do not delay a process that has nothing to apply', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([{ group: 0, member: 0, url }]).ready();
    const client = new pg.Client(url);
    await client.connect();
    onTestFinished(() => client.end());
    // The lock of a migrating process.
    await client.query('begin; select pg_advisory_xact_lock(7265814402)');
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await registry.ready();
    expect(await registry.status()).toMatchObject([{ ready: true }]);
  });

  test('create partitions of the log for this month and the next three', async () => {
    const { url } = await emptyDatabase();
    await openRegistry([{ group: 0, member: 0, url }], {}).ready();
    const partitions = await query<{ name: string }>(
      url,
      `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'eventlog.events'::regclass order by 1`,
    );
    expect(partitions.map(({ name }) => name)).toEqual([
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      expect.stringMatching(/^eventlog\.events_\d{4}_\d{2}$/),
      'eventlog.events_default',
    ]);
  });
});

async function applied(url: string): Promise<unknown> {
  const [counts] = await query(
    url,
    `select (select count(*)::int from eventlog.migrations) as framework,
            (select count(*)::int from drizzle.__drizzle_migrations) as application`,
  );
  return counts;
}

test('a migration is cancelled by the server when the migrating process goes silent', async () => {
  const { url } = await emptyDatabase();
  const folder = await folderOf(
    `create table seen as select current_setting('idle_in_transaction_session_timeout') as value`,
  );
  await migrateShards(shardingConfig([{ group: 0, member: 0, url }]), folder);
  expect(await query(url, 'select value from seen')).toEqual([{ value: '10s' }]);
});
