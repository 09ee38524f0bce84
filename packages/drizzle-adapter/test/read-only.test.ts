// @module-tag postgres
import { type Account, type SuiteContext, firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { backendPid } from './fixtures/backend-pid.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';

const connectionCount = 4;

describe('a database that is read-only for a while', () => {
  let database: TestDatabase;
  let suite: SuiteContext;
  let account: Account;

  beforeEach(async () => {
    database = await createTestDatabase();
    const settings = { 'maximum-pool-size': connectionCount };
    const registry = openRegistry([{ group: 0, member: 0, url: database.url, settings }]);
    await registry.ready();
    // There is only one attempt, so that a refusal is visible.
    suite = suiteOn(registry, { retry: { attemptsMax: 1 } });
    account = await suite.openAccount(firstShard);
  });
  afterEach(() => database.drop());

  /** Sets whether later sessions are read-only; if so, existing ones are ended. */
  const setReadOnly = async (isReadOnly: boolean): Promise<void> => {
    const name = `"${database.database}"`;
    const value = isReadOnly ? 'on' : 'off';
    await query(
      database.url,
      `begin; set transaction read write; alter database ${name} set default_transaction_read_only = ${value}; commit`,
    );
    if (!isReadOnly) return;
    await query(
      database.url,
      `select pg_terminate_backend(pid, 5000) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid()`,
    );
  };
  /** Sessions that were all opened now, and are idle afterwards. */
  const openSessions = async (): Promise<ReadonlySet<number>> =>
    new Set(await Promise.all(Array.from({ length: connectionCount }, () => backendPid(suite))));

  test('refuses writes as unavailable, with the reason and a remedy, and still serves reads', async () => {
    await setReadOnly(true);
    const refused = await refusal(suite.credit(account, '1'));
    expect(refused).toMatchObject({ code: 'shard-unavailable', shard: firstShard });
    expect(String(refused)).toMatch(/takes no writes.*default_transaction_read_only.*turn that off/);
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 1 });
    const [status] = await suite.fixture.databases.status();
    expect(status).toMatchObject({ ready: false });
    expect(String(status?.reason)).toMatch(/takes no writes.*turn that off/);
  });

  test('accepts the first write afterwards, whatever sessions were opened meanwhile', async () => {
    await setReadOnly(true);
    const before = await openSessions();
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ code: 'shard-unavailable' });
    await setReadOnly(false);
    // Young connections are kept, because new ones would be no better.
    letPass(2_000);
    expect(await suite.credit(account, '1')).toMatchObject({ version: 2 });
    const after = await openSessions();
    expect([...after].filter((pid) => before.has(pid))).toEqual([]);
    expect(await suite.fixture.databases.status()).toMatchObject([{ ready: true }]);
  });

  test('does not lose a connection for each write that it refuses', async () => {
    await setReadOnly(true);
    await refusal(suite.credit(account, '1'));
    const pids = new Set<number>();
    for (let n = 0; n < 20; n++) {
      await refusal(suite.credit(account, '1'));
      pids.add(await backendPid(suite));
    }
    expect(pids.size).toBeLessThan(15);
  });
});

/** Makes the process believe that time has passed. */
function letPass(ms: number): void {
  const now = performance.now.bind(performance);
  const spy = vi.spyOn(performance, 'now').mockImplementation(() => now() + ms);
  onTestFinished(() => spy.mockRestore());
}
