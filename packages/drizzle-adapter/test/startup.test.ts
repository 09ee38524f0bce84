import { ShardedId } from '@framework/core';
import { Account, firstShard, otherDatabaseShard } from '@framework/conformance';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { migrateShards } from '../src/index.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { folderOf } from './fixtures/migration-folder.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const patience = { timeout: 30_000, interval: 20 };

describe('a database that is down at startup', () => {
  test('delays only its own shard, and serves as soon as it is up', async () => {
    const [down, up] = [await proxied(await emptyDatabase()), await emptyDatabase()];
    await down.proxy.refuse();
    const registry = openRegistry([
      { group: 0, member: 0, url: down.url },
      { group: 1, member: 0, url: up.url },
    ]);
    const suite = suiteOn(registry);
    const ready = registry.ready();
    await vi.waitFor(() => suite.openAccount(otherDatabaseShard), patience);

    expect(await isPending(ready)).toBe(true);
    expect((await registry.status()).map((status) => status.ready)).toEqual([false, true]);
    const refusal = { code: 'shard-unavailable', shard: firstShard, retryable: true };
    await expect(suite.openAccount(firstShard)).rejects.toMatchObject(refusal);
    await expect(suite.accounts.getById(ShardedId.generate(Account, firstShard))).rejects.toMatchObject(
      refusal,
    );
    await expect(suite.accounts.findAll()).rejects.toMatchObject(refusal);
    const inTransaction = registry.transactionManager(firstShard).inTransaction(async () => 'never');
    await expect(inTransaction).rejects.toMatchObject(refusal);

    await down.proxy.accept();
    await ready;
    await suite.openAccount(firstShard);
    expect(await suite.accounts.count()).toBe(2);
    expect((await registry.status()).map((status) => status.ready)).toEqual([true, true]);
  });

  test('reports what is wrong while it is awaited', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    await proxy.refuse();
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await vi.waitFor(async () => {
      const [status] = await registry.status();
      expect(status?.reason).toMatchObject({ cause: { code: 'ECONNREFUSED' } });
    }, patience);
  });

  test('becomes ready when its connection breaks during the migrations', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    let cuts = 0;
    proxy.judge = ({ bytes }) => (bytes.includes('create_partitions') && cuts++ === 0 ? 'cut' : 'forward');
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await registry.ready();
    expect(cuts).toBeGreaterThan(1);
    expect(await suiteOn(registry).openAccount(firstShard)).toMatchObject({ version: 1 });
  });

  test.each([
    ['check', 'eventlog.shards', 'on'],
    ['on-start', 'pg_advisory_xact_lock', 'on'],
    ['on-start', 'create_partitions', 'on'],
    ['on-start', 'create_partitions', 'off'],
  ] as const)(
    'becomes ready when a connection goes silent (migrate: %s, at %s, track_activities: %s)',
    async (migrate, marker, tracked) => {
      const database = await emptyDatabase();
      await query(database.url, `alter database ${database.database} set track_activities = ${tracked}`);
      if (migrate !== 'on-start')
        await migrateShards(shardingConfig([{ group: 0, member: 0, url: database.url }]), migrationsFolder);
      const { proxy, url } = await proxied(database);
      let silent: number | undefined;
      proxy.judge = ({ connection, bytes }) => {
        if (bytes.includes(marker)) silent ??= connection;
        return connection === silent ? 'drop' : 'forward';
      };
      const registry = openRegistry([{ group: 0, member: 0, url }], { migrate, migrationsFolder });
      await vi.waitFor(() => expect(silent).toBeDefined(), patience);
      await expect(registry.ready()).resolves.toBeUndefined();
      expect(await suiteOn(registry).openAccount(firstShard)).toMatchObject({ version: 1 });
    },
  );

  test.each(['on', 'off'])(
    'is awaited while its busy server says nothing (track_activities: %s)',
    async (tracked) => {
      const { url, database } = await emptyDatabase();
      await query(url, `alter database ${database} set track_activities = ${tracked}`);
      const folder = await folderOf('select pg_sleep(7)');
      const registry = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder: folder });
      const onNotReady = vi.fn<() => void>();
      await registry.ready(onNotReady);
      expect(onNotReady).not.toHaveBeenCalled();
    },
  );

  test.each([
    ['on-start', 'eventlog.shards'],
    ['check', 'eventlog.shards'],
    ['on-start', 'eventlog.migrations'],
    ['check', 'eventlog.migrations'],
  ] as const)(
    'reports a locked table that it needs, and serves afterwards (migrate: %s, %s)',
    async (migrate, table) => {
      const { url } = await emptyDatabase();
      const members = [{ group: 0, member: 0, url }];
      await migrateShards(shardingConfig(members), migrationsFolder);
      const holder = new pg.Client({ connectionString: url });
      await holder.connect();
      onTestFinished(() => holder.end());
      await holder.query(`begin; lock table ${table} in access exclusive mode`);
      const registry = openRegistry(members, { migrate, migrationsFolder });
      const message = expect.stringMatching(/lock timeout: .* pg_locks and pg_stat_activity/) as string;
      const reason = { kind: 'not-serving', message, cause: { code: '55P03' } };
      await vi.waitFor(
        async () => expect(await registry.status()).toMatchObject([{ ready: false, reason }]),
        patience,
      );
      await holder.query('rollback');
      await registry.ready();
    },
  );

  test('does not stop the registry from closing, which rejects all who wait for it', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    await proxy.refuse();
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    const ready = registry.ready();
    await registry.close();
    await expect(ready).rejects.toBeInstanceOf(Error);
    await expect(suiteOn(registry).accounts.findAll()).rejects.toMatchObject({ code: 'databases-closed' });
  });

  test('is not migrated any further by the server when the registry closes', async () => {
    const { url } = await emptyDatabase();
    const folder = await folderOf('select pg_sleep(300)');
    const registry = openRegistry([{ group: 0, member: 0, url }], { migrationsFolder: folder });
    const ready = registry.ready();
    const working = `select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()`;
    await vi.waitFor(async () => expect(await query(url, working)).toHaveLength(1), patience);
    await registry.close();
    await expect(ready).rejects.toBeInstanceOf(Error);
    await vi.waitFor(async () => expect(await query(url, working)).toEqual([]), patience);
  });

  test('does not stop the registry from closing while the network is silent', async () => {
    const { proxy, url } = await proxied(await emptyDatabase());
    let silent = false;
    proxy.judge = ({ bytes }) => {
      silent ||= bytes.includes('pg_advisory_xact_lock');
      if (silent) proxy.silence();
      return 'forward';
    };
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    const ready = registry.ready();
    await vi.waitFor(() => expect(silent).toBe(true), patience);
    await registry.close();
    await expect(ready).rejects.toBeInstanceOf(Error);
  });
});

async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const settled = promise.then(
    () => false,
    () => false,
  );
  return Promise.race([settled, new Promise<boolean>((resolve) => setImmediate(resolve, true))]);
}
