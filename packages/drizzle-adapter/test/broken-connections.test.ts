import { type SuiteContext, firstShard, once } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { backendPid } from './fixtures/backend-pid.js';
import { openSuite } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';

const patience = { timeout: 30_000, interval: 5 };
/** With at most one connection, the next caller gets the same one, unless that was discarded. */
const single = { 'maximum-pool-size': 1 };
/** A timeout longer than any statement takes, except one that sleeps. */
const hasty = { ...single, 'statement-timeout-ms': 1_000 };

describe('connections', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  const open = (settings: Readonly<Record<string, unknown>>): Promise<SuiteContext> =>
    openSuite(database.url, settings);

  test('are discarded after a statement that timed out', async () => {
    const suite = await open(hasty);
    const before = await backendPid(suite);
    expect(await refusal(sleep(suite))).toMatchObject({ code: 'shard-unavailable', shard: firstShard });
    expect(await backendPid(suite)).not.toBe(before);
  });

  test('are discarded after a statement that timed out within a transaction', async () => {
    const suite = await open(hasty);
    const before = await backendPid(suite);
    const work = suite.fixture.databases.transactionManager(firstShard).inTransaction(() => sleep(suite));
    expect(await refusal(work)).toMatchObject({ code: 'shard-unavailable' });
    expect(await backendPid(suite)).not.toBe(before);
  });

  test('are replaced when the server ends them while they are idle', async () => {
    const suite = await open(single);
    const before = await backendPid(suite);
    await terminate(database, before);
    const after = await vi.waitFor(() => backendPid(suite), patience);
    expect(after).not.toBe(before);
  });

  test('are replaced when the server ends them during a statement', async () => {
    const suite = await open(single);
    const before = await backendPid(suite);
    const asleep = refusal(sleep(suite));
    await vi.waitUntil(() => isAsleep(database, before), patience);
    await terminate(database, before);
    expect(await asleep).toMatchObject({ code: 'shard-unavailable', retryable: true });
    expect(await backendPid(suite)).not.toBe(before);
  });

  test('are kept after a write that was refused as stale or by a constraint', async () => {
    const suite = await open(single);
    const before = await backendPid(suite);
    const account = await suite.openAccount(firstShard);
    await suite.credit(account, '1');
    const stale = suite.stage((plan) => plan.update(account.credit('1')), once);
    await expect(stale).rejects.toMatchObject({ code: 'stale-record' });
    expect(await refusal(conflict(suite))).toMatchObject({ code: 'constraint-violation' });
    expect(await backendPid(suite)).toBe(before);
  });
});

async function sleep({ fixture }: SuiteContext): Promise<void> {
  await new PgFixture(fixture.databases).accounts.db(firstShard).execute(sql`select pg_sleep(30)`);
}

/** Violates a constraint, in a separate statement. */
async function conflict({ fixture }: SuiteContext): Promise<void> {
  await new PgFixture(fixture.databases).accounts.db(firstShard).execute(sql`insert into tags values (null)`);
}

async function isAsleep({ url }: TestDatabase, pid: number): Promise<boolean> {
  const text = `select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'`;
  return (await query(url, text, [pid])).length === 1;
}

/** Ends a process of the server and waits until it is gone. */
async function terminate({ url }: TestDatabase, pid: number): Promise<void> {
  await query(url, 'select pg_terminate_backend($1, 5000)', [pid]);
}
