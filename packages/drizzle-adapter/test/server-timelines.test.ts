// @module-tag postgres
import { type DatabaseConfig, primaryConfig } from '@framework/core/adapter';
import { systemClock } from '@framework/core';
import { Account, firstShard, once, otherDatabaseShard } from '@framework/conformance';
import { createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { expect, onTestFinished, test, vi } from 'vitest';

import { ConnectionPool } from '../src/connection/connection-pool.js';
import { DatabasePlace } from '../src/connection/not-ready-error.js';
import { pgManager } from '../src/pg-transaction-manager.js';
import { openRegistry, openSuite, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const settings = { 'maximum-pool-size': 4, 'minimum-idle': 0, 'acquisition-timeout-ms': 1_000 };

/** One database that acts as several servers: new connections reach the one that the test has chosen last. */
interface ServersByName {
  readonly url: string;
  /** A server is identified by a number, and does not reveal it while an advisory lock with that number is held. */
  readonly lead: (identifier: number) => Promise<unknown>;
}

async function serversByName(group = 0): Promise<ServersByName> {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const { url } = database;
  // The database is migrated before its functions are replaced by others.
  await openRegistry([{ group, member: 0, url }]).ready();
  const lead = (identifier: number): Promise<unknown> =>
    query(
      url,
      `create or replace function named.pg_control_system(out system_identifier bigint) volatile language plpgsql as
       $$ begin system_identifier := ${identifier}; perform pg_advisory_xact_lock_shared(system_identifier); end $$`,
    );
  await query(url, 'create schema named');
  await lead(1);
  await query(url, `alter database ${database.database} set search_path = named, pg_catalog, public`);
  return { url, lead };
}

test('a refused server does not take over, and connections to the previous one continue to serve', async () => {
  const { url, lead } = await serversByName();
  const pool = await openPool(url);
  await query(url, 'create table noted as table eventlog.shards');
  const before = await pool.use(firstShard, async (lent) => {
    await query(url, 'delete from eventlog.shards');
    await lead(2);
    expect(await refusal(pool.use(firstShard, pidOf))).toMatchObject({ kind: 'not-migrated' });
    return pidOf(lent);
  });
  expect(await pool.use(firstShard, pidOf)).toBe(before);
  expect(pool.timeline).toBe(1);
  await query(url, 'insert into eventlog.shards table noted');
  const after = await pool.use(firstShard, () => pool.use(firstShard, pidOf));
  expect(pool.timeline).toBe(2);
  expect(await pool.use(firstShard, pidOf)).toBe(after);
});

test('a server that answers late does not take over from a server known to be newer', async () => {
  const { url, lead } = await serversByName();
  const pool = await openPool(url);
  const holder = new pg.Client(url);
  await holder.connect();
  onTestFinished(() => holder.end());
  await pool.use(firstShard, async () => {
    await holder.query('select pg_advisory_lock(1)');
    const late = pool.use(firstShard, pidOf);
    await vi.waitFor(async () => expect(await waitingCount(url)).toBe(1));
    await lead(2);
    const sound = await pool.use(firstShard, pidOf);
    expect(pool.timeline).toBe(2);
    await holder.query('select pg_advisory_unlock(1)');
    expect(await late).toBe(sound);
    expect(await pool.use(firstShard, pidOf)).toBe(sound);
    expect(pool.timeline).toBe(2);
  });
});

test('a caller that keeps receiving outdated connections is refused in time', async () => {
  const { url } = await serversByName();
  const config = configOf(url);
  const gone = Object.assign(new pg.DatabaseError('gone', 1, 'error'), { code: '26000' });
  let openedCount = 0;
  const guard = {
    ensure: async (client: pg.ClientBase) => {
      openedCount++;
      expect(pool.retireIfStale(gone, client)).toBe(true);
    },
  };
  const pool = new ConnectionPool(config, 'framework', new DatabasePlace(config), [guard], () => undefined);
  onTestFinished(() => pool.close());
  const failure = await refusal(pool.use(firstShard, pidOf));
  expect(failure).toMatchObject({ code: 'shard-unavailable', kind: 'unreachable' });
  expect(failure?.message).toContain('resolves to several servers in turn');
  expect(openedCount).toBeGreaterThan(1);
});

test('an action on several shards commits on none after a takeover on one of the shards it read', async () => {
  const [first, second] = [await serversByName(), await serversByName(1)];
  const suite = suiteOn(
    openRegistry([
      { group: 0, member: 0, url: first.url, settings },
      { group: 1, member: 0, url: second.url, settings },
    ]),
  );
  const { databases } = suite.fixture;
  await databases.ready();
  const accounts = [await suite.openAccount(firstShard), await suite.openAccount(otherDatabaseShard)];
  // No process has a connection to the second server when another one takes over.
  await query(
    second.url,
    'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
  );
  await second.lead(2);
  let attemptCount = 0;
  await suite.stage(
    async (plan) => {
      attemptCount++;
      for (const { id } of accounts) plan.update((await suite.accounts.getById(id)).credit('1'));
    },
    { allowCrossShard: true },
  );
  expect(attemptCount).toBe(2);
  for (const { id } of accounts) expect(await suite.accounts.getById(id)).toMatchObject({ version: 2 });
});

test('what was read before another server took over is not the base of an update, wherever an action has it from', async () => {
  const { url, lead } = await serversByName();
  const suite = await openSuite(url, settings);
  const { accounts } = suite;
  const { pool } = pgManager(suite.fixture.databases.transactionManager(firstShard)).database;
  const [one, other, listed, paged] = await suite.store(
    ...Array.from({ length: 4 }, () => Account.open(firstShard, systemClock.now(), { owner: 'ada' })),
  );
  const read = [
    one!,
    await accounts.getById(other!.id),
    (await accounts.findAllByIds([listed!.id]))[0]!,
    (await accounts.findPage({ limit: 10 })).items.find(({ id }) => id.equals(paged!.id))!,
  ];
  const credit = (account: Account): Promise<void> =>
    suite.stage((plan) => plan.update(account.credit('1')), once);
  await lead(2);
  await pool.use(firstShard, () => pool.use(firstShard, pidOf));
  expect(pool.timeline).toBe(2);
  for (const account of read)
    await expect(credit(account)).rejects.toMatchObject({ code: 'stale-record', expectedVersion: 1 });
  for (const { id } of read) await credit(await accounts.getById(id));
});

function configOf(url: string): DatabaseConfig {
  const [member] = shardingConfig([{ group: 0, member: 0, url, settings }]).members;
  return member!.databases.get(primaryConfig)!;
}

async function openPool(url: string): Promise<ConnectionPool> {
  const { databases } = (await openSuite(url, settings)).fixture;
  return pgManager(databases.transactionManager(firstShard)).database.pool;
}

async function pidOf(client: pg.ClientBase): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]!.pid;
}

async function waitingCount(url: string): Promise<number> {
  return (await query(url, "select from pg_locks where locktype = 'advisory' and not granted")).length;
}
