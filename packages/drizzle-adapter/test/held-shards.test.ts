import { type DatabaseRegistry, ShardIdentifier } from '@framework/core';
import { Account } from '@framework/conformance';
import { describe, expect, test } from 'vitest';
import { adoptShards, migrateShards, releaseShards } from '../src/index.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { LimitedRole } from './fixtures/limited-role.js';
import { migrationsFolder } from './fixtures/migrations-folder.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';
import { at, heldBy, opened } from './fixtures/shard-notes.js';
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
          'database from now on, run adoptShards(sharding, [ShardIdentifier.of(0, 0)])',
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

describe('a shard', () => {
  test('that is put into a shared database is adopted by an operator, even while processes wait for it', async () => {
    const one = await emptyDatabase();
    await opened(at(first, one));
    const members = [at(first, one), at(second, one)];
    const waiting = openRegistry([...members, { group: 9, member: 0, url: 'postgres://127.0.0.1:1/none' }]);
    const told: unknown[] = [];
    void waiting.ready((status) => told.push(status.shard)).catch(() => undefined);
    await expect.poll(() => told).toContain(ShardIdentifier.of(0, 1));
    expect(await adoptShards(shardingConfig(members), [ShardIdentifier.of(0, 1)])).toMatchObject([
      { adopted: [ShardIdentifier.of(0, 1)], released: [] },
    ]);
    await expect
      .poll(async () => (await waiting.status()).map(({ ready }) => ready))
      .toEqual([true, true, false]);
  });

  test('that moves to another database is adopted there and released by the previous one', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    const before = [at(first, one), at(second, one)];
    await opened(...before);
    await opened(at(third, other));
    const after = [at(first, one), at(second, other), at(third, other)];
    expect(await adoptShards(shardingConfig(after), [ShardIdentifier.of(0, 1)])).toEqual([
      expect.objectContaining({ adopted: [], released: [ShardIdentifier.of(0, 1)] }),
      expect.objectContaining({ adopted: [ShardIdentifier.of(0, 1)], released: [] }),
    ]);
    expect(await heldBy(one)).toEqual({ '0/0': true, '0/1': false });
    expect(await heldBy(other)).toEqual({ '0/1': true, '1/0': true });
    await opened(...after);
    // A process that was forgotten, with the old configuration, is refused.
    expect(await refusal(openRegistry(before))).toContain(
      'the database holds shard (0, 0), and has released shard (0, 1), but',
    );
    await adoptShards(shardingConfig([...before, at(third, other)]), [ShardIdentifier.of(0, 1)]);
    await opened(...before);
  });

  test('that has moved is no longer written by a process with the old configuration, whose other shards continue', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await opened(at(third, other));
    const old = openRegistry([at(first, one), at(second, one)]);
    await old.ready();
    const suite = suiteOn(old);
    const account = await suite.openAccount(ShardIdentifier.of(0, 1));
    const after = shardingConfig([at(first, one), at(second, other), at(third, other)]);
    await adoptShards(after, [ShardIdentifier.of(0, 1)]);
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ code: 'shard-unavailable' });
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ kind: 'other-shards' });
    expect(await query(one.url, 'select version::int from accounts')).toEqual([{ version: 1 }]);
  });

  test('that moves is reported with the sessions that the operator may not end', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await opened(at(first, one), at(second, one));
    await opened(at(third, other));
    const operator = await LimitedRole.create(one.url);
    for (const database of [one, other]) await operator.grantIn(database);
    const settings = { 'idle-timeout': 0 };
    const old = openRegistry([at(first, one), at(second, one)].map((member) => ({ ...member, settings })));
    await old.ready();
    await suiteOn(old).openAccount(ShardIdentifier.of(0, 1));
    const urls = [one, other].map((database) => ({ url: operator.urlOf(database) }));
    const [mine, others] = urls;
    if (mine === undefined || others === undefined) throw new Error('There are two');
    const adoptions = await adoptShards(
      shardingConfig([at(first, mine), at(second, others), at(third, others)]),
      [ShardIdentifier.of(0, 1)],
    );
    await operator.drop(one.url);
    expect(adoptions).toMatchObject([
      {
        sessionsLeft: expect.arrayContaining([expect.stringMatching(/^\w+ \(.+\), process \d+$/)]) as unknown,
      },
      { sessionsLeft: [] },
    ]);
  });

  test('is held by one database when two operators move it back and forth concurrently', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    const before = [at(first, one), at(second, one), at(third, other)];
    await opened(...before);
    const [back, forth] = [
      shardingConfig(before),
      shardingConfig([at(first, one), at(second, other), at(third, other)]),
    ];
    for (let turn = 0; turn < 5; turn++) {
      await Promise.all([forth, back].map((sharding) => adoptShards(sharding, [ShardIdentifier.of(0, 1)])));
      const held = await Promise.all([one, other].map(heldBy));
      expect(held.filter((shards) => (shards as Record<string, boolean>)['0/1'])).toHaveLength(1);
    }
  });

  test('stays where it is when a database in the move cannot be reached', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await opened(at(first, one), at(second, one), at(third, other));
    const after = [at(first, one), at(second, other), at(third, other)];
    const away = { group: 2, member: 0, url: 'postgres://127.0.0.1:1/none' };
    const adopted = adoptShards(shardingConfig([...after, away]), [ShardIdentifier.of(0, 1)]);
    await expect(adopted).rejects.toThrow('127.0.0.1:1/none');
    expect(await heldBy(one)).toEqual({ '0/0': true, '0/1': true });
  });

  test('is not adopted by a database that released it unless an operator says so', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await opened(at(first, one), at(third, other));
    await adoptShards(shardingConfig([at(first, other), at(third, one)]), [ShardIdentifier.of(0, 0)]);
    expect(await heldBy(one)).toEqual({ '0/0': false });
    expect(await refusal(openRegistry([at(third, one)]))).toContain('the database holds no shard');
  });

  test('that was alone in its database is released before it moves, and no longer written there', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    const before = [at(first, one), at(third, other)];
    const old = openRegistry(before);
    await old.ready();
    const suite = suiteOn(old);
    const account = await suite.openAccount(ShardIdentifier.of(1, 0));
    expect(await releaseShards(shardingConfig(before), [ShardIdentifier.of(1, 0)])).toMatchObject([
      { released: [ShardIdentifier.of(1, 0)], sessionsLeft: [] },
    ]);
    expect(await heldBy(other)).toEqual({ '1/0': false });
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ code: 'shard-unavailable' });
    await expect(suite.credit(account, '1')).rejects.toMatchObject({ kind: 'other-shards' });
    expect(await query(other.url, 'select version::int from accounts')).toEqual([{ version: 1 }]);
    // The other database was not contacted.
    await suite.openAccount(ShardIdentifier.of(0, 0));
    expect(await refusal(openRegistry([at(third, other)]))).toContain(
      'the database holds no shard, and has released shard (1, 0), but the configuration assigns shard (1, 0) to it: ' +
        'start this process with the configuration from after the move; or correct the jdbc-url; or, to',
    );
  });

  test('that was released is taken back only by an operator', async () => {
    const one = await emptyDatabase();
    const sharding = shardingConfig([at(first, one), at(second, one)]);
    await opened(at(first, one), at(second, one));
    for (let turn = 0; turn < 2; turn++)
      expect(await releaseShards(sharding, [ShardIdentifier.of(0, 1)])).toMatchObject([
        { released: [ShardIdentifier.of(0, 1)] },
      ]);
    expect(await refusal(openRegistry([at(first, one), at(second, one)]))).toContain(
      'the database holds shard (0, 0), and has released shard (0, 1), but',
    );
    await opened(at(first, one));
    await adoptShards(sharding, [ShardIdentifier.of(0, 1)]);
    await opened(at(first, one), at(second, one));
  });

  test('is released even by a database that has not yet recorded what it holds', async () => {
    const one = await emptyDatabase();
    const sharding = shardingConfig([at(first, one), at(second, one)]);
    await opened(at(first, one), at(second, one));
    await query(one.url, 'delete from eventlog.shards');
    await releaseShards(sharding, [ShardIdentifier.of(0, 1)]);
    expect(await heldBy(one)).toEqual({ '0/0': true, '0/1': false });
  });

  test('is not released by a database that never held it, and nothing changes', async () => {
    const [one, other] = [await emptyDatabase(), await emptyDatabase()];
    await opened(at(first, one), at(third, other));
    const exchanged = shardingConfig([at(first, one), at(second, other)]);
    const both = [ShardIdentifier.of(0, 0), ShardIdentifier.of(0, 1)];
    await expect(releaseShards(exchanged, both)).rejects.toThrow(
      `/${other.database}: the database holds shard (1, 0), and never held shard (0, 1); nothing was changed`,
    );
    await expect(releaseShards(exchanged, [ShardIdentifier.of(7, 0)])).rejects.toMatchObject({
      code: 'unknown-shard',
    });
    expect(await heldBy(one)).toEqual({ '0/0': true });
  });

  test('that is not configured is not adopted, and nothing changes while a database is unreachable', async () => {
    const one = await emptyDatabase();
    await opened(at(first, one));
    const sharding = shardingConfig([
      at(first, one),
      { group: 1, member: 0, url: 'postgres://127.0.0.1:1/none' },
    ]);
    await expect(adoptShards(sharding, [ShardIdentifier.of(7, 0)])).rejects.toMatchObject({
      code: 'unknown-shard',
    });
    await expect(adoptShards(sharding, [ShardIdentifier.of(0, 0)])).rejects.toThrow('127.0.0.1:1/none');
    expect(await heldBy(one)).toEqual({ '0/0': true });
  });

  test('is refused when its database is also configured under another address', async () => {
    const one = await emptyDatabase();
    const { url } = await proxied(one);
    const registry = openRegistry([at(first, one), { group: 1, member: 0, url }]);
    await expect(registry.ready()).rejects.toMatchObject({
      code: 'invalid-configuration',
      faults: [{ message: expect.stringContaining('is the same database as') as string }],
    });
  });
});
