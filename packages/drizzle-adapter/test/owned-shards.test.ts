import { type DatabaseRegistry, ShardIdentifier } from '@framework/core';
import { Account } from '@framework/conformance';
import { describe, expect, test } from 'vitest';
import { migrateShards } from '../src/index.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';
import { at, heldBy, opened } from './fixtures/shard-record.js';
import { shardingConfig } from './fixtures/sharding-config.js';

const [first, second, third] = [[0, 0] as const, [0, 1] as const, [1, 0] as const];

/** Waits until no shard can be used, and returns what is wrong with each. */
async function refusal(registry: DatabaseRegistry): Promise<string> {
  return registry.ready().then(
    () => 'ready',
    (error: Error) => error.message,
  );
}

describe('a database', () => {
  test('records its shards only once when many registries open it for the first time', async () => {
    const one = await emptyDatabase();
    const members = [at(first, one), at(second, one)];
    await Promise.all(Array.from({ length: 5 }, () => openRegistry(members).ready()));
    expect(await heldBy(one)).toEqual({ '0/0': true, '0/1': true });
  });

  test('that two configurations open at once for the first time holds the shards of only one of them', async () => {
    const one = await emptyDatabase();
    const registries = [openRegistry([at(first, one)]), openRegistry([at(third, one)])];
    const outcomes = await Promise.all(registries.map(refusal));
    expect(outcomes.filter((outcome) => outcome === 'ready')).toHaveLength(1);
    expect(Object.keys((await heldBy(one)) as object)).toHaveLength(1);
  });

  test.each(['on-start', 'check', 'off'] as const)(
    'of another shard is refused with both names and receives no writes (migrate: %s)',
    async (migrate) => {
      const [one, other] = [await emptyDatabase(), await emptyDatabase()];
      await opened(at(first, one), at(third, other));
      const exchanged = openRegistry([at(first, other), at(third, one)], { migrate, migrationsFolder });
      const message = await refusal(exchanged);
      expect(message).toContain(
        `shard (0, 0) member-0-0 on ${new URL(other.url).host}/${other.database}: the database holds shard (1, 0), ` +
          'but the configuration assigns shard (0, 0) to it: correct the jdbc-url; or, to keep shard (0, 0) in this ' +
          'database from now on, run adoptShards(sharding, [ShardIdentifier.of(0, 0)]) of @framework/postgres-admin',
      );
      expect(message).toContain(
        'the database holds shard (0, 0), but the configuration assigns shard (1, 0) to it',
      );
      const suite = suiteOn(exchanged);
      await expect(suite.store(Account.open(ShardIdentifier.of(0, 0), new Date()))).rejects.toMatchObject({
        code: 'shard-unavailable',
        kind: 'other-shards',
      });
      expect(await exchanged.status()).toMatchObject([
        { ready: false, reason: { kind: 'other-shards' } },
        { ready: false, reason: { kind: 'other-shards' } },
      ]);
      for (const { url } of [one, other]) {
        expect(await query(url, 'select id::text from accounts')).toEqual([]);
        expect(await query(url, 'select id::text from eventlog.events')).toEqual([]);
      }
    },
  );

  test('of another shard does not affect the databases of the right shards', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await opened(at(first, one), at(second, other));
    const registry = openRegistry([at(first, one), at(third, other)]);
    const refused = Promise.withResolvers<unknown>();
    void registry.ready((status) => refused.resolve(status)).catch(() => undefined);
    expect(await refused.promise).toMatchObject({ shard: ShardIdentifier.of(1, 0), ready: false });
    const suite = suiteOn(registry);
    await expect.poll(() => suite.store(Account.open(ShardIdentifier.of(0, 0), new Date()))).toHaveLength(1);
  });

  test('may be configured for fewer shards than it holds, but not for more', async () => {
    const one = await emptyDatabase();
    await opened(at(first, one), at(second, one));
    await opened(at(second, one));
    expect(await refusal(openRegistry([at(first, one), at(third, one)]))).toContain(
      'the database holds shard (0, 0) and shard (0, 1), but the configuration assigns shard (0, 0) and shard (1, 0) to it',
    );
    expect(await heldBy(one)).toEqual({ '0/0': true, '0/1': true });
  });

  test('that replaces another one at the same address is refused by the next connection', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await opened(at(first, one), at(third, other));
    const registry = openRegistry([at(first, one)]);
    await registry.ready();
    const suite = suiteOn(registry);
    await query(
      one.url.replace(`/${one.database}`, '/postgres'),
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${one.database}';
       alter database ${one.database} rename to ${one.database}_away;
       alter database ${other.database} rename to ${one.database};`,
    );
    try {
      await expect(suite.store(Account.open(ShardIdentifier.of(0, 0), new Date()))).rejects.toMatchObject({
        code: 'shard-unavailable',
        kind: 'other-shards',
      });
      expect(await registry.status()).toMatchObject([{ ready: false, reason: { kind: 'other-shards' } }]);
    } finally {
      await query(
        one.url.replace(`/${one.database}`, '/postgres'),
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${one.database}';
         alter database ${one.database} rename to ${other.database};
         alter database ${one.database}_away rename to ${one.database};`,
      );
    }
  });

  test('of another shard is not migrated by a job', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    const place = new URL(other.url).host;
    await migrateShards(shardingConfig([at(first, one), at(third, other)]));
    await expect(
      migrateShards(shardingConfig([at(first, other), at(third, one)]), migrationsFolder),
    ).rejects.toThrow(`primary-config: ${place}/${other.database}: the database holds shard (1, 0)`);
    expect(await query(other.url, `select to_regclass('accounts')::text as found`)).toEqual([
      { found: null },
    ]);
  });

  test('of another shard does not receive the framework migrations that it lacks', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await migrateShards(shardingConfig([at(first, one), at(third, other)]));
    const journal = 'eventlog.migrations';
    // The database now lacks the last migration.
    await query(other.url, `delete from ${journal} where id = (select max(id) from ${journal})`);
    const applied = await query(other.url, `select * from ${journal}`);
    await expect(migrateShards(shardingConfig([at(first, other), at(third, one)]))).rejects.toThrow(
      'the database holds shard (1, 0)',
    );
    expect(await query(other.url, `select * from ${journal}`)).toEqual(applied);
  });
});

test('a shard is refused when its database is also configured under another address', async () => {
  const one = await emptyDatabase();
  const { url } = await proxied(one);
  const registry = openRegistry([at(first, one), { group: 1, member: 0, url }]);
  await expect(registry.ready()).rejects.toMatchObject({
    code: 'invalid-configuration',
    faults: [{ message: expect.stringContaining('is the same database as') as string }],
  });
});

test('a database without a record of its shards is not mistaken for the one that was opened', async () => {
  const one = await emptyDatabase();
  const registry = openRegistry([at(first, one)]);
  await registry.ready();
  const suite = suiteOn(registry);
  await suite.openAccount(ShardIdentifier.of(0, 0));
  await query(
    one.url,
    `delete from eventlog.shards;
     select pg_terminate_backend(pid, 5000) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid()`,
  );
  await expect(suite.openAccount(ShardIdentifier.of(0, 0))).rejects.toMatchObject({
    code: 'shard-unavailable',
  });
  await expect(suite.openAccount(ShardIdentifier.of(0, 0))).rejects.toMatchObject({ kind: 'not-migrated' });
  expect(await registry.status()).toMatchObject([{ ready: false, reason: { kind: 'not-migrated' } }]);
  expect(await heldBy(one)).toEqual({});
});
