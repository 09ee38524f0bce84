import { FaultProxy } from '@framework/testing';
import { type SuiteContext, type SuiteOptions, decimal, firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';

import { NotificationListener } from '../src/delivery/pg-notifications.js';
import type { PostgresWarning } from '../src/index.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { behindPgBouncer, pgBouncer } from './fixtures/pgbouncer.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';

const patience = { timeout: 30_000, interval: 20 };

describe.skipIf(pgBouncer === undefined)('PgBouncer in transaction mode', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  test('lets many processes migrate a database once, although others hold some of its few sessions', async () => {
    const empty = await emptyDatabase();
    const url = await behindPgBouncer(empty, { default_pool_size: 3 });
    const other = new pg.Client({ connectionString: url });
    await other.connect();
    onTestFinished(() => other.end());
    await other.query('begin');
    await Promise.all(Array.from({ length: 6 }, () => open(url)));
    const journals = `select (select count(*)::int from drizzle.__drizzle_migrations) as application,
      (select count(distinct created_at) = count(*) from eventlog.migrations) as once`;
    expect(await query(empty.url, journals)).toEqual([{ application: 1, once: true }]);
    const locks = `select from pg_locks where locktype = 'advisory'
      and database = (select oid from pg_database where datname = current_database())`;
    expect(await query(empty.url, locks)).toEqual([]);
  });

  test.each([
    ['action by action', false],
    ['in groups', true],
  ])('commits %s over more connections than there are server sessions', async (_how, groupCommit) => {
    const url = await behindPgBouncer(database, { default_pool_size: 3 });
    const suites = [await open(url, {}, { groupCommit }), await open(url, {}, { groupCommit })];
    const accounts = await Promise.all(suites.map((suite) => suite.openAccount(firstShard)));
    const patient = { retry: { attemptsMax: 50 } };
    const credits = suites.flatMap((suite) =>
      accounts.flatMap((account) => Array.from({ length: 20 }, () => suite.credit(account, '1', patient))),
    );
    await Promise.all(credits);
    for (const { id } of accounts) {
      expect(await suites[0]!.accounts.getById(id)).toMatchObject({ version: 41, balance: decimal('40') });
    }
    const key = { idempotencyKey: `k-${accounts[0]!.id.value}` };
    const withdrawn = suites.map((suite) => suite.withdraw(accounts[0]!, '40', key));
    expect((await Promise.all(withdrawn)).map(({ version }) => version)).toEqual([42, 42]);
  });

  test('runs transactions of scripts', async () => {
    const suite = await open(await behindPgBouncer(database, { default_pool_size: 2 }));
    const account = await suite.openAccount(firstShard);
    await suite.fixture.databases.transactionManager(firstShard).inTransaction(async () => {
      await suite.fixture.overwriteNote(account, 'kept');
    });
    expect(await suite.accounts.getById(account.id)).toMatchObject({ note: 'kept' });
  });

  test('finds a commit whose answer was lost, and reports one that was never sent as unknown', async () => {
    const { port } = new URL(await behindPgBouncer(database));
    const proxy = await FaultProxy.to({ host: '127.0.0.1', port: Number(port) });
    onTestFinished(() => proxy.close());
    const url = new URL(database.url);
    url.hostname = proxy.host;
    url.port = String(proxy.port);
    const suite = await open(url.href, { 'statement-timeout-ms': 1_000 });
    const account = await suite.openAccount(firstShard);
    let verdict: 'cut' | 'forward-and-cut' = 'forward-and-cut';
    let isDue = true;
    proxy.judge = ({ direction, bytes }) => {
      if (!isDue || direction !== 'to-server' || !bytes.includes('AccountCreditedEvent')) return 'forward';
      isDue = false;
      return verdict;
    };
    expect(await suite.credit(account, '1')).toMatchObject({ version: 2 });
    [isDue, verdict] = [true, 'cut'];
    expect(await refusal(suite.credit(account, '1'))).toMatchObject({ code: 'commit-outcome-unknown' });
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 2 });
  });

  test('warns once which server timeout is missing, until the role or the database sets it', async () => {
    const empty = await emptyDatabase();
    const url = await behindPgBouncer(empty);
    const warnings: PostgresWarning[] = [];
    const first = await open(url, {}, {}, (warning) => warnings.push(warning));
    await Promise.all(Array.from({ length: 5 }, () => first.openAccount(firstShard)));
    expect(warnings).toMatchObject([{ kind: 'pooler-settings' }]);
    expect(warnings[0]?.message).toContain('statement_timeout');
    await query(empty.url, `alter database ${empty.database} set statement_timeout = 10000`);
    const second = await open(await behindPgBouncer(empty), {}, {}, (warning) => warnings.push(warning));
    await second.openAccount(firstShard);
    expect(warnings).toHaveLength(1);
  });

  test('refuses a role whose settings would change values, and names them', async () => {
    const empty = await emptyDatabase();
    await query(empty.url, `alter database ${empty.database} set extra_float_digits = 0`);
    const suite = await open(await behindPgBouncer(empty));
    const refused = await refusal(suite.accounts.findAll());
    const says = expect.stringContaining("extra_float_digits = '1'") as string;
    expect(refused).toMatchObject({ code: 'shard-unavailable', cause: { message: says } });
  });

  test("passes no setting and no LISTEN on to later users of the server's sessions", async () => {
    const url = await behindPgBouncer(database, { default_pool_size: 1 });
    const suite = await open(url);
    await suite.openAccount(firstShard);
    const settings = new URL(url);
    let notifications = 0;
    const listener = new NotificationListener(
      { client: () => ({ connectionString: settings.href }), lifetimeMaxMs: 0 },
      () => void notifications++,
    );
    onTestFinished(() => listener.close());
    await vi.waitFor(() => expect(notifications).toBe(1), patience);
    const [session] = await query(
      url,
      `select current_setting('statement_timeout') as timeout, current_setting('extra_float_digits') as digits,
        (select count(*)::int from pg_listening_channels()) as channels`,
    );
    expect(session).toEqual({ timeout: '0', digits: '1', channels: 0 });
  });
});

async function open(
  url: string,
  settings: Readonly<Record<string, unknown>> = {},
  options: SuiteOptions = {},
  onWarning: (warning: PostgresWarning) => void = () => undefined,
): Promise<SuiteContext> {
  const members = [{ group: 0, member: 0, url, settings }];
  const registry = openRegistry(members, { migrationsFolder, onWarning });
  await registry.ready();
  return suiteOn(registry, options);
}
