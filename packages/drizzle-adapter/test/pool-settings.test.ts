import { firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type PostgresWarning, migrateShards } from '../src/index.js';
import { backendPid } from './fixtures/backend-pid.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const patience = { timeout: 30_000, interval: 10 };

describe('the settings of a pool', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
    await migrateShards(shardingConfig([{ group: 0, member: 0, url: database.url }]), migrationsFolder);
  });
  afterAll(() => database.drop());

  const open = async (
    applicationName: string,
    settings: Readonly<Record<string, unknown>>,
    onWarning?: (warning: PostgresWarning) => void,
    url = database.url,
  ) => {
    const registry = openRegistry([{ group: 0, member: 0, url, settings }], {
      applicationName,
      ...(onWarning && { onWarning }),
    });
    await registry.ready();
    return suiteOn(registry);
  };
  const pidsOf = async (applicationName: string): Promise<readonly number[]> => {
    const text = 'select pid from pg_stat_activity where application_name = $1 order by pid';
    return (await query<{ pid: number }>(database.url, text, [applicationName])).map(({ pid }) => pid);
  };

  test('keep minimum-idle connections open from the start, and reopen them when they are lost', async () => {
    await open('minimum-idle', { 'minimum-idle': 3 });
    await vi.waitFor(async () => expect(await pidsOf('minimum-idle')).toHaveLength(3), patience);
    const before = await pidsOf('minimum-idle');
    await query(database.url, 'select pg_terminate_backend(pid, 5000) from unnest($1::int[]) as pid', [
      [...before],
    ]);
    await vi.waitFor(async () => {
      const after = await pidsOf('minimum-idle');
      expect(after).toHaveLength(3);
      expect(after.filter((pid) => before.includes(pid))).toEqual([]);
    }, patience);
  });

  test('leave the open connections to requests while a lost one cannot be replaced', async () => {
    const { proxy, url } = await proxied(database);
    const settings = { 'minimum-idle': 2, 'idle-timeout': 0, 'acquisition-timeout-ms': 1_000 };
    const suite = await open('not-replaced', settings, undefined, url);
    await vi.waitFor(async () => expect(await pidsOf('not-replaced')).toHaveLength(2), patience);
    const [lost, left] = await pidsOf('not-replaced');
    const before = proxy.connectionCount;
    proxy.judge = ({ connection }) => (connection > before ? 'drop' : 'forward');
    await query(database.url, 'select pg_terminate_backend($1, 5000)', [lost]);
    await vi.waitFor(() => expect(proxy.connectionCount).toBeGreaterThan(before), patience);
    expect(await backendPid(suite)).toBe(left);
  });

  test('close surplus connections after idle-timeout', async () => {
    const suite = await open('idle-timeout', { 'minimum-idle': 1, 'idle-timeout': 50 });
    await Promise.all([1, 2, 3, 4].map(() => backendPid(suite)));
    await vi.waitFor(async () => expect(await pidsOf('idle-timeout')).toHaveLength(1), patience);
  });

  test('replace a connection after max-lifetime, including one that listens for notifications', async () => {
    const suite = await open('max-lifetime', { 'minimum-idle': 1, 'idle-timeout': 0, 'max-lifetime': 100 });
    const [delivery] = suite.fixture.databases.deliveries();
    const close = await delivery!.store.notifications.listen(() => undefined);
    onTestFinished(() => close());
    for (const applicationName of ['max-lifetime', 'max-lifetime notifications']) {
      const before = await vi.waitFor(async () => {
        const pids = await pidsOf(applicationName);
        expect(pids).toHaveLength(1);
        return pids;
      }, patience);
      await vi.waitFor(async () => {
        const after = await pidsOf(applicationName);
        expect(after).toHaveLength(1);
        expect(after).not.toEqual(before);
      }, patience);
    }
  });

  test("report a connection held longer than leak-detection-threshold, with its borrower's stack", async () => {
    const warnings: PostgresWarning[] = [];
    const suite = await open('leaks', { 'leak-detection-threshold': 20 }, (warning) =>
      warnings.push(warning),
    );
    const released = Promise.withResolvers<void>();
    onTestFinished(() => released.resolve());
    async function forgetToEnd(): Promise<void> {
      await suite.fixture.databases.transactionManager(firstShard).inTransaction(() => released.promise);
    }
    const forgotten = forgetToEnd();
    await vi.waitFor(() => expect(warnings).toHaveLength(1), patience);
    expect(warnings[0]).toMatchObject({
      kind: 'connection-leak',
      database: 'framework.sharding.groups[0].members[0].configs.primary-config',
    });
    expect(warnings[0]?.stack).toContain('forgetToEnd');
    released.resolve();
    await forgotten;
    expect(await backendPid(suite)).toBeGreaterThan(0);
    expect(warnings).toHaveLength(1);
  });

  test.each(['on-start', 'check', 'off'] as const)(
    'do not let one database be opened under two addresses (migrate: %s)',
    async (migrate) => {
      const { url } = await proxied(database);
      const registry = openRegistry(
        [
          { group: 0, member: 0, url: database.url },
          { group: 1, member: 0, url },
        ],
        { migrate, migrationsFolder },
      );
      await expect(registry.ready()).rejects.toMatchObject({
        code: 'invalid-configuration',
        faults: [{ message: expect.stringContaining('is the same database as') as string }],
      });
    },
  );

  test('treat two spellings of an address as the same database', async () => {
    const { url } = await emptyDatabase();
    const other = new URL(url);
    other.hostname = 'LOCALHOST';
    const registry = openRegistry([
      { group: 0, member: 0, url },
      { group: 1, member: 0, url: other.href },
    ]);
    await registry.ready();
    expect(registry.deliveries()).toHaveLength(1);
    expect(registry.eachDatabase()).toHaveLength(1);
  });
});
