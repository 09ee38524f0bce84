import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { type SuiteContext, firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { backendPid, backendPidOf } from './fixtures/backend-pid.js';
import { openRegistry, openSuite, suiteOn } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';

const patience = { timeout: 30_000, interval: 5 };

describe('the connections of a database', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  const open = (settings: Readonly<Record<string, unknown>>): Promise<SuiteContext> =>
    openSuite(database.url, settings);

  test('are limited in number, however many statements run at once', async () => {
    const suite = await open({ 'maximum-pool-size': 3 });
    const pids = await Promise.all(Array.from({ length: 30 }, () => backendPid(suite)));
    expect(new Set(pids).size).toBeLessThanOrEqual(3);
  });

  test('are refused to a caller that has waited too long', async () => {
    const suite = await open({ 'maximum-pool-size': 1, 'acquisition-timeout-ms': 500 });
    const transactions = suite.fixture.databases.transactionManager(firstShard);
    const account = await suite.openAccount(firstShard);
    const release = Promise.withResolvers<void>();
    const holder = transactions.inTransaction(() => release.promise);
    await expect(suite.accounts.getById(account.id)).rejects.toMatchObject({ code: 'shard-unavailable' });
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ code: 'shard-unavailable' });
    release.resolve();
    await holder;
    expect(await suite.credit(account, '1')).toMatchObject({ version: 2 });
  });

  test('are opened outside any async context by the readiness check', async () => {
    const suite = await open({});
    const request = new AsyncLocalStorage<string>();
    const contexts: unknown[] = [];
    const connect = Reflect.get(pg.Client.prototype, 'connect') as () => void;
    const spy = vi.spyOn(pg.Client.prototype, 'connect').mockImplementation(function (this: pg.Client) {
      contexts.push(request.getStore());
      return Reflect.apply(connect, this, []);
    });
    onTestFinished(() => spy.mockRestore());
    expect(await request.run('first', () => suite.fixture.databases.status())).toMatchObject([
      { ready: true },
    ]);
    expect(contexts).toEqual([undefined]);
  });

  test('report whether the server is ready even when none is left for the check', async () => {
    const role = `connections_${randomUUID().slice(0, 8)}`;
    await query(database.url, `create role ${role} login password '${role}' in role pg_read_all_data`);
    onTestFinished(async () => void (await query(database.url, `drop role ${role}`)));
    await openRegistry([{ group: 0, member: 0, url: database.url }]).ready();
    const url = new URL(database.url);
    url.username = role;
    url.password = role;
    const databases = openRegistry([{ group: 0, member: 0, url: url.href }], { migrate: 'off' });
    await databases.ready();
    await query(database.url, `alter role ${role} connection limit 1`);
    expect(await databases.status()).toMatchObject([{ ready: true }]);
    await databases.transactionManager(firstShard).inTransaction(async () => undefined);
    expect(await Promise.all([databases.status(), databases.status()])).toMatchObject([
      [{ ready: true }],
      [{ ready: true }],
    ]);
    await query(database.url, `alter role ${role} connection limit 0`);
    const end = 'select pg_terminate_backend(pid) from pg_stat_activity where usename = $1';
    await query(database.url, end, [role]);
    const refused = [{ ready: false, reason: { kind: 'not-serving' } }];
    await expect.poll(() => databases.status(), patience).toMatchObject(refused);
  });

  test('are refused to a caller that finds the queue full', async () => {
    const suite = await open({ 'maximum-pool-size': 1, 'acquisition-queue-max': 2 });
    const release = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    const holder = suite.fixture.databases.transactionManager(firstShard).inTransaction(async () => {
      held.resolve();
      await release.promise;
    });
    await held.promise;
    const waiting = [backendPid(suite), backendPid(suite)];
    expect(await refusal(backendPid(suite))).toMatchObject({ code: 'shard-unavailable' });
    release.resolve();
    await holder;
    expect(await Promise.all(waiting)).toHaveLength(2);
  });

  test('need no queue while some of them are free', async () => {
    const suite = await open({ 'maximum-pool-size': 2, 'acquisition-queue-max': 0 });
    expect(await Promise.all([backendPid(suite), backendPid(suite)])).toHaveLength(2);
    const outcomes = await Promise.all([1, 2, 3].map(() => refusal(backendPid(suite))));
    expect(outcomes.filter((outcome) => outcome !== undefined)).toMatchObject([
      { code: 'shard-unavailable' },
    ]);
  });

  test('close when running work has finished, and later callers are refused', async () => {
    const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
    await registry.ready();
    const suite = suiteOn(registry);
    const account = await suite.openAccount(firstShard);
    const release = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    const holder = registry.transactionManager(firstShard).inTransaction(async () => {
      held.resolve();
      await release.promise;
      await suite.fixture.overwriteNote(account, 'finished');
    });
    await held.promise;
    onTestFinished(() => release.resolve());
    const closed = registry.close();
    const refused = { code: 'databases-closed', retryable: false };
    await vi.waitFor(
      () => expect(suite.accounts.getById(account.id)).rejects.toMatchObject(refused),
      patience,
    );
    release.resolve();
    await Promise.all([holder, closed]);
    await expect(suite.credit(account, '1')).rejects.toMatchObject(refused);
    const [row] = await query(database.url, 'select note from accounts where id = $1', [account.id.value]);
    expect(row).toEqual({ note: 'finished' });
  });

  test('are not reported as ready any more once they are closed', async () => {
    const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
    await registry.ready();
    expect(await registry.status()).toMatchObject([{ ready: true }]);
    await registry.close();
    const refused = { code: 'databases-closed', shard: firstShard };
    expect(await registry.status()).toMatchObject([{ ready: false, reason: refused }]);
    await expect(registry.ready()).rejects.toMatchObject(refused);
    await expect(registry.readyOn(firstShard)).rejects.toMatchObject(refused);
  });

  test('close only after those who already wait for one have been served', async () => {
    const settings = { 'maximum-pool-size': 1, 'acquisition-timeout-ms': 30_000 };
    const registry = openRegistry([{ group: 0, member: 0, url: database.url, settings }]);
    await registry.ready();
    const transactions = registry.transactionManager(firstShard);
    const release = Promise.withResolvers<void>();
    onTestFinished(() => release.resolve());
    const held = Promise.withResolvers<void>();
    const holder = transactions.inTransaction(async () => {
      held.resolve();
      await release.promise;
    });
    await held.promise;
    const waiting = transactions.inTransaction(async () => 'served');
    const closed = registry.close();
    const later = transactions.inTransaction(async () => 'late');
    await expect(later).rejects.toMatchObject({ code: 'databases-closed' });
    release.resolve();
    await Promise.all([holder, closed]);
    expect(await waiting).toBe('served');
  });

  test('are shared by the members that name the same database', async () => {
    // The database of the other tests has been opened with one shard, and so holds no other.
    const own = await createTestDatabase();
    onTestFinished(() => own.drop());
    const { url } = own;
    const settings = { 'maximum-pool-size': 1 };
    const registry = openRegistry([
      { group: 0, member: 0, url, settings },
      { group: 0, member: 1, url, settings },
    ]);
    await registry.ready();
    const { accounts } = new PgFixture(registry);
    const pids = await Promise.all(registry.shards.map((shard) => backendPidOf(accounts.db(shard))));
    expect(new Set(pids).size).toBe(1);
  });

  test('refuse transactions that bypass the framework', async () => {
    const suite = await open({});
    const { accounts } = new PgFixture(suite.fixture.databases);
    await expect(accounts.db(firstShard).transaction(async () => 'never')).rejects.toMatchObject({
      code: 'invariant-violation',
    });
  });
});
