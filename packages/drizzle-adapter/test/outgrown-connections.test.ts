import { type SuiteContext, home } from '@framework/testing/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { sql } from 'drizzle-orm';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { backendPid } from './fixtures/backend-pid.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';

const pair = { 'maximum-pool-size': 2 };
const single = { 'maximum-pool-size': 1 };

describe('connections whose server or table has changed under them', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  const open = async (settings: Readonly<Record<string, unknown>>): Promise<SuiteContext> => {
    const registry = openRegistry([{ group: 0, member: 0, url: database.url, settings }]);
    await registry.ready();
    return suiteOn(registry);
  };
  const widen = (): Promise<unknown> =>
    query(database.url, 'alter table accounts alter column balance type numeric(40, 18)');
  const narrow = (): Promise<unknown> =>
    query(database.url, 'alter table accounts alter column balance type numeric(38, 18)');

  it('serve on when another process widens a column', async () => {
    const suite = await open(pair);
    const account = await suite.openAccount(home);
    await Promise.all([1, 2, 3, 4].map(() => suite.accounts.getById(account.id)));
    await widen();
    onTestFinished(() => void narrow());
    expect(await suite.accounts.getById(account.id)).toEqual(account);
    for (let version = 2; version < 8; version++) {
      expect(await suite.credit(account, '1')).toMatchObject({ version });
    }
  });

  it('let an action in a transaction of its own run again when another process alters its table', async () => {
    const suite = await open(single);
    const account = await suite.openAccount(home);
    const { databases } = suite.fixture;
    const read = (): Promise<unknown> =>
      databases.transactionManager(home).inTransaction(() => suite.accounts.getById(account.id));
    await read();
    await query(database.url, 'alter table accounts add column beside text');
    await query(database.url, 'alter table accounts drop column note, add column note text');
    onTestFinished(() => void query(database.url, 'alter table accounts drop column beside'));
    const failure = await refusal(read());
    expect(failure?.code ?? 'transient-storage').toBe('transient-storage');
    expect(await read()).toMatchObject({ version: 1 });
  });

  it('serve on when what they had prepared is gone', async () => {
    const suite = await open(single);
    const account = await suite.openAccount(home);
    await suite.credit(account, '1');
    await new PgFixture(suite.fixture.databases).accounts.db(home).execute(sql`deallocate all`);
    expect(await suite.credit(account, '1')).toMatchObject({ version: 3 });
  });

  it('tell everybody who shares one that the table is locked, and nobody that a statement is missing', async () => {
    const suite = await open({ ...single, 'statement-timeout-ms': 300 });
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query('begin; lock table accounts in access exclusive mode');
    const outcomes = await Promise.all([1, 2, 3].map(() => refusal(suite.openAccount(home))));
    expect(outcomes.map((outcome) => outcome?.code)).toEqual(Array(3).fill('shard-unavailable'));
    await holder.query('rollback');
    expect(await suite.openAccount(home)).toMatchObject({ version: 1 });
  });

  it('are replaced when the server takes no writes, so that they heal as soon as one does', async () => {
    const suite = await open(pair);
    const account = await suite.openAccount(home);
    const [row] = await query<{ name: string }>(database.url, 'select current_database() as name');
    const writing = new URL(database.url);
    writing.searchParams.set('options', '-c default_transaction_read_only=off');
    const writable = (): Promise<unknown> =>
      query(writing.href, `alter database ${row?.name} reset default_transaction_read_only`);
    onTestFinished(() => void writable());
    await query(database.url, `alter database ${row?.name} set default_transaction_read_only = on`);
    await query(
      database.url,
      'select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
    );
    const readOnly = await Promise.all([1, 2, 3, 4].map(() => refusal(suite.credit(account, '1'))));
    expect(new Set(readOnly.map((outcome) => outcome?.code))).toEqual(new Set(['shard-unavailable']));
    await writable();
    const healed = async (): Promise<boolean> => (await refusal(suite.credit(account, '1'))) === undefined;
    const attempts = [await healed(), await healed(), await healed()];
    expect(attempts.at(-1)).toBe(true);
  });

  it('are kept when the work of a transaction gives up, or its commit is refused by a deferred constraint', async () => {
    const suite = await open(single);
    const manager = suite.fixture.databases.transactionManager(home);
    const { accounts } = new PgFixture(suite.fixture.databases);
    const before = await backendPid(suite);
    const given = new Error('the rules of a script');
    await expect(
      manager.inTransaction(async () => {
        await accounts.count();
        throw given;
      }),
    ).rejects.toBe(given);
    expect(await backendPid(suite)).toBe(before);
    await query(
      database.url,
      'create table twice (id int unique deferrable initially deferred); insert into twice values (1)',
    );
    onTestFinished(() => void query(database.url, 'drop table twice'));
    const refused = manager.inTransaction(() => accounts.db(home).execute(sql`insert into twice values (1)`));
    await expect(refused).rejects.toMatchObject({ code: 'constraint-violation' });
    expect(await backendPid(suite)).toBe(before);
  });

  it('are not kept when a statement of a transaction took too long, although its work hides that', async () => {
    const suite = await open({ ...single, 'statement-timeout-ms': 50 });
    const before = await backendPid(suite);
    const { accounts, databases } = new PgFixture(suite.fixture.databases);
    const work = databases.transactionManager(home).inTransaction(async () => {
      await refusal(accounts.db(home).execute(sql`select pg_sleep(30)`));
      throw new Error('something else');
    });
    await expect(work).rejects.toThrow('something else');
    expect(await backendPid(suite)).not.toBe(before);
  });
});
