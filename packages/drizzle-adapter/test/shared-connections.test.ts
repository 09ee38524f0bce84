import { AsyncLocalStorage } from 'node:async_hooks';
import { SuiteContext, firstShard, once, sameDatabaseShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { openRegistry } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { query } from './fixtures/query.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';

const patience = { timeout: 30_000, interval: 10 };
const applicationName = 'shared';

describe('connections that commits share', () => {
  let database: TestDatabase;
  beforeEach(async () => {
    database = await createTestDatabase();
    return () => database.drop();
  });

  /** Opens the suite without group commit, which would send one statement for many actions. */
  const open = async (poolMax: number): Promise<SuiteContext> => {
    const settings = {
      'maximum-pool-size': poolMax,
      'acquisition-timeout-ms': 30_000,
      'statement-timeout-ms': 30_000,
    };
    const members = [0, 1].map((member) => ({ group: 0, member, url: database.url, settings }));
    const registry = openRegistry(members, { migrationsFolder, applicationName });
    await registry.ready();
    const suite = new SuiteContext();
    suite.open(new PgFixture(registry));
    return suite;
  };

  test('fill the pool when there is much to do', async () => {
    const suite = await open(20);
    await Promise.all(Array.from({ length: 200 }, () => suite.openAccount()));
    expect(await sessions(database)).toHaveLength(20);
  });

  test('keep the outcomes of commits apart', async () => {
    const suite = await open(1);
    const account = await suite.openAccount();
    await suite.credit(account, '1');
    const stale = (): Promise<void> => suite.stage((plan) => plan.update(account.credit('1')), once);
    const taken = (): Promise<void> => suite.stage((plan) => plan.add(account.variant({ version: 0 })), once);
    const calls = [stale, () => suite.openAccount(), taken, () => suite.openAccount(), stale];
    const outcomes = await Promise.allSettled(calls.map((call) => call()));
    expect(outcomes).toMatchObject([
      { reason: { code: 'stale-record' } },
      { value: { version: 1 } },
      { reason: { code: 'stale-record', expectedVersion: 0 } },
      { value: { version: 1 } },
      { reason: { code: 'stale-record' } },
    ]);
    expect(await suite.accounts.findAll()).toHaveLength(3);
    expect(await sessions(database)).toHaveLength(1);
  });

  test('take no new commit while one of theirs waits for a lock', async () => {
    const suite = await open(3);
    const account = await suite.openAccount();
    const release = await lock(database, account.id.value);
    const blocked = suite.credit(account, '1');
    await vi.waitUntil(() => isBlocked(database), patience);
    const opened = await Promise.all(Array.from({ length: 50 }, () => suite.openAccount()));
    expect(opened).toHaveLength(50);
    await release();
    expect(await blocked).toMatchObject({ version: 2 });
  });

  test('do not delay commits that were sent behind one that waits for a lock', async () => {
    const suite = await open(2);
    const accounts = await Promise.all(Array.from({ length: 12 }, () => suite.openAccount()));
    const [held, ...free] = accounts;
    const release = await lock(database, held!.id.value);
    let isDone = false;
    const blocked = suite.credit(held!, '1').then((credited) => {
      isDone = true;
      return credited;
    });
    // These commits are sent at once, so that several share the connection of the one that waits for a lock.
    await Promise.all(free.map((account) => suite.credit(account, '1')));
    expect(isDone).toBe(false);
    await release();
    expect(await blocked).toMatchObject({ version: 2 });
  });

  test('are never all taken by commits that wait for locks', async () => {
    const suite = await open(4);
    const accounts = await Promise.all(Array.from({ length: 6 }, () => suite.openAccount()));
    const release = await lock(database, ...accounts.map(({ id }) => id.value));
    let doneCount = 0;
    const blocked = accounts.map(async (account) => {
      const credited = await suite.credit(account, '1', once);
      doneCount++;
      return credited;
    });
    await vi.waitUntil(() => isBlocked(database), patience);
    expect(await Promise.all(Array.from({ length: 20 }, () => suite.openAccount()))).toHaveLength(20);
    expect(doneCount).toBe(0);
    await release();
    expect((await Promise.all(blocked)).map(({ version }) => version)).toEqual([2, 2, 2, 2, 2, 2]);
  });

  test('serve a row that becomes free while others wait for rows that stay locked', async () => {
    const suite = await open(4);
    const accounts = await Promise.all(Array.from({ length: 3 }, () => suite.openAccount()));
    const [first, second, third] = accounts.map(({ id }) => id.value);
    const releaseOthers = await lock(database, first!, second!);
    const release = await lock(database, third!);
    const [one, other, credited] = accounts.map((account) => suite.credit(account, '1', once));
    // Two have waited briefly, and now wait in the two places for lock waits; the third one has been tried briefly a second time.
    const waits = new Set<string>();
    await vi.waitUntil(async () => {
      for (const wait of await lockWaits(database)) waits.add(wait);
      return waits.size >= 6;
    }, patience);
    await release();
    expect(await credited).toMatchObject({ version: 2 });
    expect(await lockWaits(database)).toHaveLength(2);
    await releaseOthers();
    expect(await Promise.all([one, other])).toMatchObject([{ version: 2 }, { version: 2 }]);
  });

  test('write every change that concurrent executions make to a locked row, without wasted attempts', async () => {
    const suite = await open(20);
    const account = await suite.openAccount();
    const release = await lock(database, account.id.value);
    const credits = Array.from({ length: 100 }, () => suite.credit(account, '1'));
    await vi.waitUntil(() => isBlocked(database), patience);
    await release();
    const versions = (await Promise.all(credits)).map(({ version }) => version);
    expect(new Set(versions).size).toBe(100);
  });

  test('complete a commit whose caller holds the lock in a transaction on another shard', async () => {
    const suite = await open(3);
    const account = await suite.openAccount();
    const manager = suite.fixture.databases.transactionManager(firstShard);
    const outside = AsyncLocalStorage.snapshot();
    let blocked: Promise<unknown> | undefined;
    await manager.inTransaction(async () => {
      await suite.fixture.overwriteNote(account, 'held');
      blocked = outside(() => suite.credit(account, '1'));
      await vi.waitUntil(() => isBlocked(database), patience);
      await suite.openAccount(sameDatabaseShard);
    });
    expect(await blocked).toMatchObject({ version: 2 });
  });

  test('may break under several commits, each of which happens once', async () => {
    const suite = await open(2);
    const accounts = await Promise.all(Array.from({ length: 12 }, () => suite.openAccount()));
    const release = await lock(database, accounts[0]?.id.value ?? '');
    const credited = Promise.all(accounts.map((account) => suite.credit(account, '1')));
    await vi.waitUntil(() => isBlocked(database), patience);
    for (const pid of await sessions(database)) await terminate(database, pid);
    await release();
    for (const account of await credited) expect(account).toMatchObject({ version: 2 });
    const events = await suite.storedEvents();
    expect(events.filter(({ eventType }) => eventType === 'AccountCreditedEvent')).toHaveLength(12);
  });
});

/** The server's processes that serve the suite. */
async function sessions({ url }: TestDatabase): Promise<readonly number[]> {
  const text =
    'select pid from pg_stat_activity where application_name = $1 and datname = current_database()';
  return (await query<{ pid: number }>(url, text, [applicationName])).map(({ pid }) => pid);
}

async function terminate({ url }: TestDatabase, pid: number): Promise<void> {
  await query(url, 'select pg_terminate_backend($1, 5000)', [pid]);
}

/** Locks the rows of accounts until the returned function is called. */
async function lock({ url }: TestDatabase, ...ids: readonly string[]): Promise<() => Promise<void>> {
  const holder = new pg.Client({ connectionString: url });
  // The database is dropped while the session is open.
  holder.on('error', () => undefined);
  await holder.connect();
  onTestFinished(() => holder.end());
  await holder.query('begin');
  await holder.query('select from accounts where id = any($1) for update', [ids]);
  return async () => void (await holder.query('rollback'));
}

/** Whether a commit has waited for a lock for so long that its connection takes nothing new. */
async function isBlocked({ url }: TestDatabase): Promise<boolean> {
  const text = `select from pg_stat_activity where application_name = $1 and datname = current_database()
    and wait_event_type = 'Lock' and query_start < clock_timestamp() - interval '100 ms'`;
  return (await query(url, text, [applicationName])).length > 0;
}

/** Each statement that waits for a lock, by its start time. */
async function lockWaits({ url }: TestDatabase): Promise<readonly string[]> {
  const text = `select pid || ' ' || query_start as wait from pg_stat_activity
    where application_name = $1 and datname = current_database() and wait_event_type = 'Lock'`;
  return (await query<{ wait: string }>(url, text, [applicationName])).map(({ wait }) => wait);
}
