import { type DatabaseRegistry, ShardIdentifier } from '@framework/core';
import { describe, expect, test } from 'vitest';
import { adoptShards, releaseShards } from '../src/index.js';
import { emptyDatabase } from '../../drizzle-adapter/test/fixtures/empty-database.js';
import { LimitedRole } from '../../drizzle-adapter/test/fixtures/limited-role.js';
import { openRegistry, suiteOn } from '../../drizzle-adapter/test/fixtures/open-registry.js';
import { query } from '../../drizzle-adapter/test/fixtures/query.js';
import { at, heldBy, opened } from '../../drizzle-adapter/test/fixtures/shard-record.js';
import { shardingConfig } from '../../drizzle-adapter/test/fixtures/sharding-config.js';

const [first, second, third] = [[0, 0] as const, [0, 1] as const, [1, 0] as const];

/** Waits until no shard can be used, and returns what is wrong with each. */
async function refusal(registry: DatabaseRegistry): Promise<string> {
  return registry.ready().then(
    () => 'ready',
    (error: Error) => error.message,
  );
}

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
});
