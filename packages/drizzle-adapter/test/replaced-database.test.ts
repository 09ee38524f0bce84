import type { DatabaseRegistry } from '@framework/core';
import { type Account, type SuiteContext, firstShard } from '@framework/conformance';
import type { TestDatabase } from '@framework/testing/postgres';
import { expect, test, vi } from 'vitest';

import { keyedTables } from '../src/migration/schema-check.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { whileClosed } from './fixtures/while-closed.js';

const patience = { timeout: 30_000, interval: 20 };
const notMigrated = { code: 'shard-unavailable', retryable: true, kind: 'not-migrated' };

interface Opened {
  readonly database: TestDatabase;
  readonly registry: DatabaseRegistry;
  readonly suite: SuiteContext;
  readonly account: Account;
}

/** A ready database with an account in it. */
async function openedDatabase(): Promise<Opened> {
  const database = await emptyDatabase();
  const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
  const suite = suiteOn(registry);
  return { database, registry, suite, account: await suite.openAccount(firstShard) };
}

test('an empty database that replaces an opened one is not ready until the original returns', async () => {
  const { database, registry, suite, account } = await openedDatabase();
  const { database: name } = database;
  await whileClosed(database, `alter database ${name} rename to ${name}_away; create database ${name}`);
  await expect(suite.accounts.getById(account.id)).rejects.toMatchObject(notMigrated);
  await expect(suite.credit(account, '1')).rejects.toMatchObject(notMigrated);
  expect(await registry.status()).toMatchObject([{ ready: false, reason: { kind: 'not-migrated' } }]);

  await whileClosed(
    database,
    `drop database ${name}; alter database ${name}_away rename to ${name};
     alter database ${name} with allow_connections true`,
  );
  expect(await suite.credit(account, '1')).toMatchObject({ version: 2 });
  expect(await registry.status()).toMatchObject([{ ready: true }]);
});

test('a database that replaces an opened one is not ready while it has no record of its shards', async () => {
  const { database, registry, suite, account } = await openedDatabase();
  await query(database.url, 'create table noted as table eventlog.shards; delete from eventlog.shards');
  await whileClosed(database, `alter database ${database.database} with allow_connections true`);
  const message = expect.stringContaining(
    'has no record of its shards, so it is not the one that was opened',
  ) as string;
  await expect(suite.credit(account, '1')).rejects.toMatchObject({ ...notMigrated, message });
  expect(await registry.status()).toMatchObject([{ ready: false, reason: { message } }]);

  await query(database.url, 'insert into eventlog.shards table noted');
  expect(await suite.credit(account, '1')).toMatchObject({ version: 2 });
  expect(await registry.status()).toMatchObject([{ ready: true }]);
});

test('a database is not ready while a restore has loaded its rows but not created its keys', async () => {
  const { database, registry, suite, account } = await openedDatabase();
  await query(database.url, 'alter table eventlog.idempotency_keys drop constraint idempotency_keys_pkey');
  await whileClosed(database, `alter database ${database.database} with allow_connections true`);
  await expect(suite.credit(account, '1')).rejects.toMatchObject(notMigrated);
  expect(await registry.status()).toMatchObject([{ ready: false, reason: { kind: 'not-migrated' } }]);
  for (const migrate of ['on-start', 'check', 'off'] as const) {
    const started = openRegistry([{ group: 0, member: 0, url: database.url }], { migrate });
    await vi.waitFor(async () => {
      expect(await started.status()).toMatchObject([{ ready: false, reason: { kind: 'not-migrated' } }]);
    }, patience);
  }

  await query(
    database.url,
    'alter table eventlog.idempotency_keys add primary key (key, principal, namespace)',
  );
  expect(await suite.credit(account, '1')).toMatchObject({ version: 2 });
  expect(await registry.status()).toMatchObject([{ ready: true }]);
});

test("a database that loses the framework's tables while connected is not ready until they return", async () => {
  const { database, suite, account } = await openedDatabase();
  await query(database.url, 'alter schema eventlog rename to eventlog_away');
  await expect(suite.credit(account, '1')).rejects.toMatchObject(notMigrated);
  await query(database.url, 'alter schema eventlog_away rename to eventlog');
  expect(await suite.credit(account, '1')).toMatchObject({ version: 2 });
});

test('each table of the framework is checked for its primary key if statements rely on that key', async () => {
  const { database } = await openedDatabase();
  const tables = await query<{ name: string }>(
    database.url,
    `select relname as name from pg_class
     where relnamespace = 'eventlog'::regnamespace and relkind in ('r', 'p') and not relispartition
       and relname not in ('migrations', 'server_run') order by relname`,
  );
  expect(tables.map(({ name }) => name)).toEqual(keyedTables);
});
