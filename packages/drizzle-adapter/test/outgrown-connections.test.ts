import { ShardedId } from '@framework/core';
import { type Account, type SuiteContext, Tag, firstShard, once } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { sql } from 'drizzle-orm';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';

import { pgManager } from '../src/pg-transaction-manager.js';
import { backendPid } from './fixtures/backend-pid.js';
import { openSuite } from './fixtures/open-registry.js';
import { changeSetOf, persistTogether } from './fixtures/persist.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { PgTagRepository } from './fixtures/pg-tag-repository.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';

const pair = { 'maximum-pool-size': 2 };
const single = { 'maximum-pool-size': 1 };
/** More connections than are tried for one statement. */
const several = { 'maximum-pool-size': 5 };

describe('connections whose server or table has changed', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  const open = (settings: Readonly<Record<string, unknown>>): Promise<SuiteContext> =>
    openSuite(database.url, settings);
  const widen = (): Promise<unknown> =>
    query(database.url, 'alter table accounts alter column balance type numeric(40, 18)');
  const narrow = (): Promise<unknown> =>
    query(database.url, 'alter table accounts alter column balance type numeric(38, 18)');

  test('continue to serve when another process widens a column', async () => {
    const suite = await open(pair);
    const account = await suite.openAccount(firstShard);
    await Promise.all([1, 2, 3, 4].map(() => suite.accounts.getById(account.id)));
    await widen();
    onTestFinished(() => void narrow());
    expect(await suite.accounts.getById(account.id)).toEqual(account);
    for (let version = 2; version < 8; version++) {
      expect(await suite.credit(account, '1')).toMatchObject({ version });
    }
  });

  test('let an action with its own transaction run again when another process alters its table', async () => {
    const suite = await open(single);
    const account = await suite.openAccount(firstShard);
    const { databases } = suite.fixture;
    const read = (): Promise<unknown> =>
      databases.transactionManager(firstShard).inTransaction(() => suite.accounts.getById(account.id));
    await read();
    await query(database.url, 'alter table accounts add column beside text');
    await query(database.url, 'alter table accounts drop column note, add column note text');
    onTestFinished(() => void query(database.url, 'alter table accounts drop column beside'));
    const failure = await refusal(read());
    expect(failure?.code ?? 'transient-storage').toBe('transient-storage');
    expect(await read()).toMatchObject({ version: 1 });
  });

  test('continue to serve when their prepared statements are gone', async () => {
    const suite = await open(single);
    const account = await suite.openAccount(firstShard);
    await suite.credit(account, '1');
    await new PgFixture(suite.fixture.databases).accounts.db(firstShard).execute(sql`deallocate all`);
    expect(await suite.credit(account, '1')).toMatchObject({ version: 3 });
  });

  test('cost no attempt when the prepared statement of a write is gone', async () => {
    const suite = await open(single);
    const account = await suite.openAccount(firstShard);
    const credit = (credited: Account): Promise<void> =>
      suite.stage((plan) => plan.update(credited.credit('1')), once);
    await credit(account);
    await new PgFixture(suite.fixture.databases).accounts.db(firstShard).execute(sql`deallocate all`);
    await credit(account.credit('1').variant({ version: 2, events: [] }));
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 3 });
  });

  test('split no group when its prepared statement is gone', async () => {
    const { databases } = (await open(single)).fixture;
    const tags = new PgTagRepository(databases);
    const before = await tags.count();
    const write = (): Promise<void> => {
      const [one, other] = [1, 2].map(() => ShardedId.generate(Tag, firstShard));
      const fields = { state: 'ACTIVE', label: 'in a group', version: 1 } as const;
      const group = [one!, other!].map((id) => changeSetOf(tags, new Tag({ id, ...fields })));
      return persistTogether(databases, group);
    };
    await write();
    await tags.db(firstShard).execute(sql`deallocate all`);
    await write();
    expect(await tags.count()).toBe(before + 4);
  });

  test('are all replaced when one is refused, so that none of the others is tried', async () => {
    const suite = await open(several);
    const account = await suite.openAccount(firstShard);
    await prepareReads(suite, account);
    await widen();
    onTestFinished(() => void narrow());
    expect(await suite.accounts.getById(account.id)).toEqual(account);
  });

  test('are all replaced when one is refused within a transaction, which may run again', async () => {
    const suite = await open(several);
    const account = await suite.openAccount(firstShard);
    await prepareReads(suite, account);
    await widen();
    onTestFinished(() => void narrow());
    const { databases } = suite.fixture;
    const read = (): Promise<unknown> =>
      databases.transactionManager(firstShard).inTransaction(() => suite.accounts.getById(account.id));
    await expect(read()).rejects.toMatchObject({ code: 'transient-storage' });
    expect(await read()).toEqual(account);
  });

  test('are closed to later callers after one of them was refused', async () => {
    const suite = await open(single);
    await suite.openAccount(firstShard);
    const { pool } = pgManager(suite.fixture.databases.transactionManager(firstShard)).database;
    const clients: pg.ClientBase[] = [];
    const [sent, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const before = pool.share(firstShard, async (client) => {
      clients.push(client);
      sent.resolve();
      await answered.promise;
    });
    await sent.promise;
    const gone = Object.assign(new pg.DatabaseError('gone', 1, 'error'), { code: '26000' });
    expect(pool.retireIfStale(gone, clients[0])).toBe(true);
    const after = pool.share(firstShard, async (client) => void clients.push(client));
    answered.resolve();
    await Promise.all([before, after]);
    expect(clients).toHaveLength(2);
    expect(clients[1]).not.toBe(clients[0]);
  });

  test('report a locked table, and not a missing statement, to every caller that shares one', async () => {
    const suite = await open({ ...single, 'statement-timeout-ms': 1_000 });
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query('begin; lock table accounts in access exclusive mode');
    const outcomes = await Promise.all([1, 2, 3].map(() => refusal(suite.openAccount(firstShard))));
    expect(outcomes.map((outcome) => outcome?.code)).toEqual(Array(3).fill('shard-unavailable'));
    await holder.query('rollback');
    expect(await suite.openAccount(firstShard)).toMatchObject({ version: 1 });
  });

  test('are kept when a transaction fails in its work or at a deferred constraint', async () => {
    const suite = await open(single);
    const manager = suite.fixture.databases.transactionManager(firstShard);
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
    const refused = manager.inTransaction(() =>
      accounts.db(firstShard).execute(sql`insert into twice values (1)`),
    );
    await expect(refused).rejects.toMatchObject({ code: 'constraint-violation' });
    expect(await backendPid(suite)).toBe(before);
  });

  test('are discarded after a timeout in a transaction, even one that its work hides', async () => {
    const suite = await open({ ...single, 'statement-timeout-ms': 1_000 });
    const before = await backendPid(suite);
    const { accounts, databases } = new PgFixture(suite.fixture.databases);
    const work = databases.transactionManager(firstShard).inTransaction(async () => {
      await refusal(accounts.db(firstShard).execute(sql`select pg_sleep(30)`));
      throw new Error('something else');
    });
    await expect(work).rejects.toThrow('something else');
    expect(await backendPid(suite)).not.toBe(before);
  });
});

/** Makes every connection of the pool prepare the statement that reads one account. */
async function prepareReads(suite: SuiteContext, { id }: Account): Promise<void> {
  const manager = suite.fixture.databases.transactionManager(firstShard);
  const all = Promise.withResolvers<void>();
  let count = 0;
  const prepare = (): Promise<void> =>
    manager.inTransaction(async () => {
      await suite.accounts.getById(id);
      if (++count === several['maximum-pool-size']) all.resolve();
      await all.promise;
    });
  await Promise.all(Array.from({ length: several['maximum-pool-size'] }, prepare));
}
