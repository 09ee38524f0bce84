// @module-tag postgres
import type { MessageOutcome } from '@framework/testing';
import { type SuiteContext, Tag, decimal, firstShard, sameDatabaseShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { type ProxiedDatabase, cutOnce, isSent, proxied } from './fixtures/proxied.js';
import { lockWaiters } from './fixtures/lock-waiters.js';
import { query } from './fixtures/query.js';

/** A marker in every message that sends a single-statement write. */
const write = 'framework_write';
/** A marker in the message that ends a write of several statements. */
const lastOfSeveral = 'commit\0';
const hasty = { 'statement-timeout-ms': 1_000, 'acquisition-timeout-ms': 1_500 };
/** An unknown outcome is reported sooner than this, even on a busy machine; with the default settings, it would take longer. */
const hastyMs = 9_000;

describe('a commit whose connection breaks', () => {
  let database: TestDatabase;
  let proxy: ProxiedDatabase['proxy'];
  let suite: SuiteContext;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  const open = async (settings: Readonly<Record<string, unknown>> = {}): Promise<void> => {
    const through = await proxied(database);
    proxy = through.proxy;
    const registry = openRegistry([
      { group: 0, member: 0, url: through.url, settings },
      { group: 0, member: 1, url: through.url, settings },
    ]);
    await registry.ready();
    suite = suiteOn(registry);
    await suite.fixture.clear();
  };

  test('after its write has arrived is found in the log, and the action succeeds', async () => {
    await open();
    const account = await suite.openAccount(firstShard);
    const wasCut = cutOnce(proxy, write, 'forward-and-cut');
    expect(await suite.credit(account, '5')).toMatchObject({ version: 2, balance: decimal('5') });
    expect(wasCut()).toBe(true);
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 2, balance: decimal('5') });
    expect(await suite.storedEvents()).toHaveLength(2);
  });

  test('while its write waits for a lock is awaited, and the action succeeds', async () => {
    await open();
    const account = await suite.openAccount(firstShard);
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query('begin');
    await holder.query('select from accounts where id = $1 for update', [account.id.value]);
    let questions = 0;
    // The first write waits only for a moment.
    let writes = 0;
    proxy.judge = (message) => {
      if (isSent(message, 'pg_stat_activity where pid = $1')) questions++;
      return isSent(message, write) && ++writes === 2 ? 'forward-and-cut' : 'forward';
    };
    const credited = suite.credit(account, '5');
    await vi.waitFor(() => expect(questions).toBeGreaterThan(1), 30_000);
    await holder.query('rollback');
    expect(await credited).toMatchObject({ version: 2, balance: decimal('5') });
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 2, balance: decimal('5') });
    expect(await suite.storedEvents()).toHaveLength(2);
  });

  test('while its write by a restricted role waits for a lock is awaited, and has one effect', async () => {
    await open();
    const { login, remove } = await hiddenLogin(database);
    onTestFinished(remove);
    await query(
      database.url,
      `create table owners (name text primary key); insert into owners values ('held')`,
    );
    onTestFinished(() => query(database.url, 'drop table owners cascade').then(() => undefined));
    await query(
      database.url,
      'alter table accounts add constraint owners_fk foreign key (owner) references owners (name)',
    );
    const through = await proxied({ host: database.host, port: database.port, url: login });
    const registry = openRegistry([{ group: 0, member: 0, url: through.url }], { migrate: 'off' });
    await registry.ready();
    const hidden = suiteOn(registry);
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    onTestFinished(() => holder.end());
    // The inserted row waits for the one that it references.
    await holder.query(`begin; select from owners where name = 'held' for update`);
    let questions = 0;
    let writes = 0;
    through.proxy.judge = (message) => {
      if (isSent(message, 'pg_stat_activity where pid = $1')) questions++;
      return isSent(message, write) && ++writes === 2 ? 'forward-and-cut' : 'forward';
    };
    const opened = hidden.openAccount(firstShard, { owner: 'held' });
    // Either the outcome was queried again, or a second write is waiting.
    await vi.waitFor(async () => {
      expect(Math.max(questions, await lockWaiters(database.url))).toBeGreaterThan(1);
    }, 30_000);
    await holder.query('rollback');
    await opened;
    expect(await suite.storedEvents()).toHaveLength(1);
    await registry.close();
  });

  test('before its write has arrived is made by another attempt, and has one effect', async () => {
    await open();
    const account = await suite.openAccount(firstShard);
    const wasCut = cutOnce(proxy, write, 'cut');
    expect(await suite.credit(account, '5')).toMatchObject({ version: 2, balance: decimal('5') });
    expect(wasCut()).toBe(true);
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 2, balance: decimal('5') });
    expect(await suite.storedEvents()).toHaveLength(2);
  });

  test.each([
    ['before', 'cut'],
    ['after', 'forward-and-cut'],
  ] as const)('%s the last of several statements has arrived has one effect', async (_when, verdict) => {
    await open();
    const tags = Array.from({ length: 100 }, (_unused, index) => Tag.of(firstShard, `tag ${index}`));
    const wasCut = cutOnce(proxy, lastOfSeveral, verdict);
    await suite.stage((plan) => plan.addAll(tags));
    expect(wasCut()).toBe(true);
    expect(await suite.fixture.tags.count()).toBe(100);
    expect(await suite.storedEvents()).toHaveLength(1);
  });

  test('again and again has one effect for each successful action', async () => {
    await open();
    const account = await suite.openAccount(firstShard);
    let turn = 0;
    const verdicts: readonly MessageOutcome[] = ['cut', 'forward-and-cut', 'forward'];
    proxy.judge = ({ direction, bytes }) =>
      direction === 'to-server' && bytes.includes(write) ? verdicts[turn++ % 3]! : 'forward';
    for (let count = 0; count < 6; count++) await suite.credit(account, '1');
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 7, balance: decimal('6') });
    expect(await suite.storedEvents()).toHaveLength(7);
  });

  test("on a database's second shard is not mistaken for that of the first shard", async () => {
    await open();
    const [one, other] = [await suite.openAccount(firstShard), await suite.openAccount(sameDatabaseShard)];
    let writes = 0;
    proxy.judge = (message) => (isSent(message, write) && ++writes === 2 ? 'cut' : 'forward');
    const partial = suite.stage((plan) => plan.updateAll([one.credit('1'), other.credit('1')]), {
      allowCrossShard: true,
    });
    await expect(partial).rejects.toMatchObject({
      code: 'partial-commit',
      committed: [firstShard],
      failed: [sameDatabaseShard],
    });
    expect(await suite.accounts.getById(other.id)).toEqual(other);
  });

  test('is recorded once even if its action stages nothing', async () => {
    await open();
    const wasCut = cutOnce(proxy, write, 'cut');
    await suite.stage(() => undefined);
    expect(wasCut()).toBe(true);
    expect(await suite.storedEvents()).toHaveLength(1);
  });

  test('for good is reported as unknown within a deadline', async () => {
    await open(hasty);
    const account = await suite.openAccount(firstShard);
    proxy.judge = (message) => {
      if (!isSent(message, write)) return 'forward';
      void proxy.refuse();
      return 'cut';
    };
    const startedMs = performance.now();
    await expect(suite.credit(account, '5')).rejects.toMatchObject({
      code: 'commit-outcome-unknown',
      shard: firstShard,
      retryable: true,
    });
    expect(performance.now() - startedMs).toBeLessThan(hastyMs);
    const [row] = await query(database.url, 'select version::int from accounts where id = $1', [
      account.id.value,
    ]);
    expect(row).toEqual({ version: 1 });
  });

  test('in a transaction of a script is reported as unknown', async () => {
    await open();
    const manager = suite.fixture.databases.transactionManager(firstShard);
    const wasCut = cutOnce(proxy, 'commit\0', 'forward-and-cut');
    await expect(manager.inTransaction(async () => 'done')).rejects.toMatchObject({
      code: 'commit-outcome-unknown',
      shard: firstShard,
      actionId: undefined,
    });
    expect(wasCut()).toBe(true);
  });

  test('during the read that precedes it is made by another attempt', async () => {
    await open();
    const account = await suite.openAccount(firstShard);
    const wasCut = cutOnce(proxy, 'framework_read', 'forward-and-cut');
    expect(await suite.credit(account, '5')).toMatchObject({ version: 2 });
    expect(wasCut()).toBe(true);
    expect(await suite.storedEvents()).toHaveLength(2);
  });
});

/** A login with another role, which may not see when its own processes started. */
async function hiddenLogin(
  database: TestDatabase,
): Promise<{ readonly login: string; readonly remove: () => Promise<void> }> {
  const [owner, login] = [`${database.database}_owner`, `${database.database}_login`];
  await query(
    database.url,
    `create role "${owner}"; create role "${login}" login password 'pw'; grant "${owner}" to "${login}";
     alter role "${login}" set role = "${owner}"; grant usage on schema eventlog, public to "${owner}";
     grant all on all tables in schema eventlog, public to "${owner}";
     grant all on all sequences in schema eventlog, public to "${owner}"`,
  );
  const url = new URL(database.url);
  url.username = login;
  url.password = 'pw';
  const text = `drop owned by "${owner}"; drop role "${login}"; drop role "${owner}"`;
  return { login: url.href, remove: async () => void (await query(database.url, text)) };
}
