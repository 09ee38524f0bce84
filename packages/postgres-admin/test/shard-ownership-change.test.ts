import { ShardIdentifier } from '@framework/core';
import { migrateShards } from '@framework/drizzle-adapter';
import type { FaultProxy } from '@framework/testing';
import type { TestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { adoptShards } from '../src/index.js';
import { emptyDatabase } from '../../drizzle-adapter/test/fixtures/empty-database.js';
import { LimitedRole } from '../../drizzle-adapter/test/fixtures/limited-role.js';
import { lockWaiters } from '../../drizzle-adapter/test/fixtures/lock-waiters.js';
import { migrationsFolder } from '../../drizzle-adapter/test/fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from '../../drizzle-adapter/test/fixtures/open-registry.js';
import { proxied } from '../../drizzle-adapter/test/fixtures/proxied.js';
import { query } from '../../drizzle-adapter/test/fixtures/query.js';
import { at, heldBy, opened } from '../../drizzle-adapter/test/fixtures/shard-record.js';
import { shardingConfig } from '../../drizzle-adapter/test/fixtures/sharding-config.js';

const [first, second, third] = [[0, 0] as const, [0, 1] as const, [1, 0] as const];
const shard = ShardIdentifier.of(0, 1);
const patience = { timeout: 30_000, interval: 20 };

/** Two databases, one of which holds two shards, and the configuration that moves one of these to the other database. */
async function aboutToMove(): Promise<{
  readonly one: TestDatabase;
  readonly other: TestDatabase;
  readonly after: ReturnType<typeof shardingConfig>;
}> {
  const [one, other] = [await emptyDatabase(), await emptyDatabase()];
  await opened(at(first, one), at(second, one), at(third, other));
  const after = shardingConfig([at(first, one), at(second, other), at(third, other)]);
  return { one, other, after };
}

/** Makes the recording of a further shard wait, from its first statement, until the test lets it continue. */
async function heldUp({ url }: TestDatabase): Promise<{
  readonly begun: () => Promise<unknown>;
  readonly goOn: () => Promise<unknown>;
}> {
  const holder = new pg.Client({ connectionString: url });
  await holder.connect();
  onTestFinished(() => holder.end());
  await holder.query(
    `create sequence tries;
     create function hold_up() returns trigger language plpgsql as $$
     begin
       if nextval('tries') > 1 then perform pg_advisory_xact_lock(1); end if;
       return new;
     end $$;
     create trigger hold_up before insert on eventlog.shards for each row execute function hold_up();
     select pg_advisory_lock(1)`,
  );
  return {
    begun: () => expect.poll(() => lockWaiters(url), patience).toBe(1),
    goOn: async () => {
      await holder.query('select pg_advisory_unlock_all()');
      const changing = `select from pg_stat_activity
        where datname = current_database() and application_name like 'framework shards%'`;
      await expect.poll(() => query(url, changing), patience).toEqual([]);
    },
  };
}

/** Ends the connections that hold the locks of a change. */
function loseLocks(...places: readonly TestDatabase[]): Promise<unknown> {
  return Promise.all(
    places.map(({ url }) =>
      query(
        url,
        `select pg_terminate_backend(pid, 5000) from pg_stat_activity
         where datname = current_database() and state = 'idle in transaction' and application_name like 'framework shards%'`,
      ),
    ),
  );
}

describe('a shard that is adopted', () => {
  test('ends the sessions of the previous database even if the new one recorded it first', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    const forgotten = openRegistry([at(first, one), at(second, one)], { migrationsFolder });
    await forgotten.ready();
    const suite = suiteOn(forgotten);
    const account = await suite.openAccount(shard);
    const after = shardingConfig([at(first, one), at(second, other)]);
    await migrateShards(after, migrationsFolder);
    expect(await heldBy(other)).toEqual({ '0/1': true });
    await adoptShards(after, [shard]);
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ code: 'shard-unavailable' });
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ kind: 'other-shards' });
  });

  test('ends the sessions of the previous database when an interrupted adoption is repeated', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    const settings = { 'idle-timeout': 0 };
    const before = [at(first, one), at(second, one)].map((member) => ({ ...member, settings }));
    const forgotten = openRegistry(before);
    await forgotten.ready();
    const suite = suiteOn(forgotten);
    const account = await suite.openAccount(shard);
    // An operator does the first step, and is then killed.
    await query(
      one.url,
      'update eventlog.shards set released_date = clock_timestamp() where shard_member = 1',
    );
    const after = [at(first, one), at(second, other)];
    await opened(...after);
    expect(await heldBy(other)).toEqual({ '0/1': true });
    await adoptShards(shardingConfig(after), [shard]);
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ code: 'shard-unavailable' });
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ kind: 'other-shards' });
  });

  test('is not recorded again by a migrated but unopened database after it moved away', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    const before = [at(first, one), at(second, one)];
    await migrateShards(shardingConfig(before), migrationsFolder);
    await query(one.url, 'delete from eventlog.shards');
    const after = shardingConfig([at(first, one), at(second, other)]);
    await migrateShards(shardingConfig([at(second, other)]), migrationsFolder);
    await adoptShards(after, [shard]);
    await expect(openRegistry(before).ready()).rejects.toMatchObject({ code: 'no-usable-shard' });
    expect(await Promise.all([one, other].map(heldBy))).toEqual([{ '0/0': true }, { '0/1': true }]);
  });

  test(
    'is held by one database when the locks are lost and another operator moves it back',
    { timeout: 60_000 },
    async () => {
      const { one, other, after } = await aboutToMove();
      const before = shardingConfig([at(first, one), at(second, one), at(third, other)]);
      const old = openRegistry([{ ...at(first, one), settings: { 'idle-timeout': 0 } }]);
      await old.ready();
      await suiteOn(old).openAccount(ShardIdentifier.of(0, 0));
      // The adoption waits for some seconds for the session above, which this operator may not end.
      const operator = await LimitedRole.create(one.url);
      onTestFinished(() => operator.drop(one.url));
      for (const database of [one, other]) await operator.grantIn(database);
      const [mine, theirs] = [{ url: operator.urlOf(one) }, { url: operator.urlOf(other) }];
      const moved = adoptShards(shardingConfig([at(first, mine), at(second, theirs), at(third, theirs)]), [
        shard,
      ]);
      const outcome = moved.then(
        () => 'adopted',
        (error: Error) => error.message,
      );
      await expect
        .poll(() => heldBy(one), { timeout: 20_000, interval: 5 })
        .toEqual({ '0/0': true, '0/1': false });
      await loseLocks(one, other);
      await adoptShards(before, [shard]);
      expect(await outcome).toContain('the lock on a database was lost');
      expect(await Promise.all([one, other].map(heldBy))).toEqual([
        { '0/0': true, '0/1': true },
        { '1/0': true },
      ]);
      await adoptShards(after, [shard]);
    },
  );

  test.each<[event: string, interrupt: (proxy: FaultProxy, ...databases: TestDatabase[]) => unknown]>([
    ['the operator is cut off', (proxy) => proxy.cut('reset')],
    ['the locks are lost', (_proxy, ...databases) => loseLocks(...databases)],
  ])(
    'is held by one database when %s before the new one records it and it moves back',
    async (_event, interrupt) => {
      const { one, other } = await aboutToMove();
      const noting = await heldUp(other);
      const { proxy, url } = await proxied(other);
      const moved = adoptShards(shardingConfig([at(first, one), at(second, { url }), at(third, { url })]), [
        shard,
      ]);
      const outcome = moved.then(
        () => 'adopted',
        () => 'failed',
      );
      await noting.begun();
      await interrupt(proxy, one, other);
      await expect
        .poll(
          () => adoptShards(shardingConfig([at(first, one), at(second, one)]), [shard]).then(() => true),
          patience,
        )
        .toBe(true);
      await noting.goOn();
      expect(await outcome).toBe('failed');
      expect(await Promise.all([one, other].map(heldBy))).toEqual([
        { '0/0': true, '0/1': true },
        { '1/0': true },
      ]);
    },
  );

  test('stays where it is when the new database is read-only', async () => {
    const { one, other, after } = await aboutToMove();
    const { pathname } = new URL(other.url);
    await query(other.url, `alter database ${pathname.slice(1)} set default_transaction_read_only = on`);
    await expect(adoptShards(after, [shard])).rejects.toThrow('takes no writes');
    expect(await heldBy(one)).toEqual({ '0/0': true, '0/1': true });
  });

  test('stays where it is when the new database refuses the record', async () => {
    const { one, other, after } = await aboutToMove();
    await query(other.url, 'alter table eventlog.shards add check (shard_group > 0)');
    await expect(adoptShards(after, [shard])).rejects.toThrow('violates check constraint');
    expect(await heldBy(one)).toEqual({ '0/0': true, '0/1': true });
  });

  test('may be named twice in one call', async () => {
    const { one, other, after } = await aboutToMove();
    await adoptShards(after, [shard, shard]);
    expect(await Promise.all([one, other].map(heldBy))).toEqual([
      { '0/0': true, '0/1': false },
      { '0/1': true, '1/0': true },
    ]);
  });
});
