// @module-tag postgres
import { Account } from '@framework/conformance';
import { ShardIdentifier } from '@framework/core';
import type { ShardStatus } from '@framework/core/adapter';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { type PostgresWarning, migrateShards } from '../src/index.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { LimitedRole } from './fixtures/limited-role.js';
import { folderOf } from './fixtures/migration-folder.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const firstShard = ShardIdentifier.of(0, 0);
/** The time of a migration that the code does not know, because a later release added it. */
const laterMs = Date.UTC(2100, 0, 1);
const commands = { migrate: 'npm run migrate' };

async function addLater(url: string, journal: string): Promise<void> {
  await query(url, `insert into ${journal} (hash, created_at) values ('0123456789abcdef', ${laterMs})`);
}

function sharding(url: string): ReturnType<typeof shardingConfig> {
  return shardingConfig([{ group: 0, member: 0, url }]);
}

test.each(['on-start', 'check', 'off'] as const)(
  'a database that is not encoded in UTF-8 is refused with the encoding and the remedy (migrate: %s)',
  async (migrate) => {
    const { url, database } = await emptyDatabase();
    const latin = `${database}_latin1`;
    await query(url, `create database ${latin} encoding 'LATIN1' template template0 locale 'C'`);
    onTestFinished(async () => void (await query(url, `drop database ${latin} with (force)`)));
    const registry = openRegistry([{ group: 0, member: 0, url: url.replace(database, latin) }], { migrate });
    await expect(registry.ready()).rejects.toThrow(
      /encoded in LATIN1, which cannot store every text: create it again with encoding 'UTF8'/,
    );
    expect(await registry.status()).toMatchObject([{ ready: false, reason: { kind: 'other-encoding' } }]);
  },
);

describe('a schema that is only checked', () => {
  test('is not ready until it is migrated, and says what is missing', async () => {
    const { url } = await emptyDatabase();
    const registry = openRegistry([{ group: 0, member: 0, url }], {
      migrate: 'check',
      migrationsFolder,
      commands,
    });
    const told: ShardStatus[] = [];
    const ready = registry.ready((status) => told.push(status));
    await vi.waitFor(() => expect(told).toHaveLength(1), 30_000);
    expect(told[0]?.reason).toMatchObject({
      kind: 'not-migrated',
      message: expect.stringMatching(
        /^the schema is older than the code: it lacks all migrations \(0000_log to \d{4}_\w+\) of the framework, 0000_suite of the application: apply the missing migrations with npm run migrate or, if the database is being restored, wait for the restore to finish$/,
      ) as string,
    });
    await expect(suiteOn(registry).store(Account.open(firstShard, new Date()))).rejects.toMatchObject({
      code: 'shard-unavailable',
      kind: 'not-migrated',
    });
    expect(await query(url, `select to_regclass('eventlog.events')::text as found`)).toEqual([
      { found: null },
    ]);
    const [migration] = await migrateShards(sharding(url), migrationsFolder);
    expect(migration?.applied).toContain('0005_operations of the framework');
    await ready;
    expect((await migrateShards(sharding(url), migrationsFolder))[0]?.applied).toEqual([]);
  });

  test("is not ready without the framework's tables when checks are off, until it is migrated", async () => {
    const { url } = await emptyDatabase();
    const registry = openRegistry([{ group: 0, member: 0, url }], { migrate: 'off', commands });
    const told = Promise.withResolvers<ShardStatus>();
    const ready = registry.ready(told.resolve);
    expect(await Promise.race([told.promise, ready])).toMatchObject({
      reason: {
        kind: 'not-migrated',
        message: expect.stringMatching(
          /^the framework's tables are missing: apply the missing migrations with npm run migrate or, /,
        ) as string,
      },
    });
    await migrateShards(sharding(url), migrationsFolder);
    await ready;
    await suiteOn(registry).openAccount(firstShard);
  });

  test('is not ready while only application migrations are missing', async () => {
    const { url } = await emptyDatabase();
    const [before, after] = [await folderOf('select 1'), await folderOf('select 1', 'select 2')];
    await migrateShards(sharding(url), before);
    const registry = openRegistry([{ group: 0, member: 0, url }], {
      migrate: 'check',
      migrationsFolder: after,
    });
    const told = Promise.withResolvers<ShardStatus>();
    const ready = registry.ready(told.resolve);
    expect((await told.promise).reason).toMatchObject({
      message: expect.stringContaining('it lacks 0001_test of the application: apply') as string,
    });
    await migrateShards(sharding(url), after);
    await ready;
  });

  test.each(['eventlog.migrations', 'drizzle.__drizzle_migrations'])(
    'is refused when it is newer than the code, naming the unknown migrations, in %s',
    async (journal) => {
      const { url } = await emptyDatabase();
      await migrateShards(sharding(url), migrationsFolder);
      await addLater(url, journal);
      const registry = openRegistry([{ group: 0, member: 0, url }], { migrate: 'check', migrationsFolder });
      await expect(registry.ready()).rejects.toMatchObject({
        cause: {
          kind: 'schema-newer',
          message: `the schema is newer than the code, which does not know a migration of 2100-01-01T00:00:00.000Z in ${journal}, hash 0123456789ab: start the release that added them, or set migrate to off so that this release runs with them`,
        },
      });
    },
  );

  test.each(['on-start', 'off'] as const)(
    'is accepted when newer than the code, so that releases can overlap (migrate: %s)',
    async (migrate) => {
      const { url } = await emptyDatabase();
      await migrateShards(sharding(url), migrationsFolder);
      await addLater(url, 'eventlog.migrations');
      const warnings: PostgresWarning[] = [];
      const registry = openRegistry([{ group: 0, member: 0, url }], {
        migrate,
        migrationsFolder,
        onWarning: (warning) => warnings.push(warning),
      });
      await registry.ready();
      expect(await suiteOn(registry).store(Account.open(firstShard, new Date()))).toHaveLength(1);
      const isTold = migrate === 'on-start';
      expect(warnings.map(({ kind }) => kind)).toEqual(isTold ? ['newer-schema'] : []);
    },
  );
});

describe('a role that owns nothing', () => {
  test('cannot migrate, and is told what is missing and what to do', async () => {
    const database = await emptyDatabase();
    const role = await LimitedRole.create(database.url);
    onTestFinished(() => role.drop(database.url));
    const registry = openRegistry([{ group: 0, member: 0, url: role.urlOf(database) }], {
      migrationsFolder,
      commands,
    });
    await expect(registry.ready()).rejects.toMatchObject({
      cause: {
        kind: 'migration-not-allowed',
        message: expect.stringMatching(
          /^the schema is older than the code: it lacks all migrations \(0000_log to \d{4}_\w+\) of the framework, and this role may not migrate it \(permission denied for database \w+\): apply them with npm run migrate as the role that owns the schema, and set migrate to 'check' for this role$/,
        ) as string,
      },
    });
  });

  test.each(['on-start', 'check', 'off'] as const)(
    'serves a migrated database and creates and drops its partitions (migrate: %s)',
    async (migrate) => {
      const database = await emptyDatabase();
      const role = await LimitedRole.create(database.url);
      onTestFinished(() => role.drop(database.url));
      await migrateShards(sharding(database.url), migrationsFolder);
      await role.grantIn(database);
      const warnings: PostgresWarning[] = [];
      const registry = openRegistry([{ group: 0, member: 0, url: role.urlOf(database) }], {
        migrate,
        migrationsFolder,
        onWarning: (warning) => warnings.push(warning),
      });
      await registry.ready();
      const [delivery] = registry.deliveries();
      await query(database.url, 'drop table ' + (await lastPartition(database.url)));
      await delivery?.store.partitions.create();
      expect(await lastPartition(database.url)).toMatch(/^eventlog.events_\d{4}_\d{2}$/);
      await query(
        database.url,
        `create table eventlog.events_2020_01 partition of eventlog.events for values from ('2020-01-01Z') to ('2020-02-01Z')`,
      );
      expect(await delivery?.store.partitions.drop(1)).toEqual(['events_2020_01']);
      expect(warnings).toEqual([]);
    },
  );

  test.each([
    ['without a warning while there are enough', 0, []],
    ['with a warning when the next one is missing', 1, [{ kind: 'log-partitions' }]],
  ])('serves without the right to create partitions, %s', async (_title, monthsAhead, expected) => {
    const database = await emptyDatabase();
    const role = await LimitedRole.create(database.url);
    onTestFinished(() => role.drop(database.url));
    await migrateShards(sharding(database.url), migrationsFolder);
    await role.grantIn(database);
    await query(
      database.url,
      `revoke execute on function eventlog.create_partitions(integer) from ${role.name}`,
    );
    if (monthsAhead > 0)
      await query(database.url, `drop table ${await partitionIn(database.url, monthsAhead)}`);
    const warnings: PostgresWarning[] = [];
    const registry = openRegistry([{ group: 0, member: 0, url: role.urlOf(database) }], {
      migrate: 'check',
      migrationsFolder,
      onWarning: (warning) => warnings.push(warning),
    });
    await registry.ready();
    expect(warnings).toMatchObject(expected);
  });
});

/** The name of the partition of a month to come. */
async function partitionIn(url: string, monthsAhead: number): Promise<string> {
  const [row] = await query<{ name: string }>(
    url,
    `select 'eventlog.events_' || to_char(date_trunc('month', now() at time zone 'UTC') + ${monthsAhead} * interval '1 month',
       'YYYY_MM') as name`,
  );
  return row?.name ?? '';
}

/** The name of the partition of the latest month. */
async function lastPartition(url: string): Promise<string> {
  const [last] = await query<{ name: string }>(
    url,
    `select inhrelid::regclass::text as name from pg_inherits
     where inhparent = 'eventlog.events'::regclass and inhrelid::regclass::text ~ '\\d$' order by 1 desc limit 1`,
  );
  return last?.name ?? '';
}
