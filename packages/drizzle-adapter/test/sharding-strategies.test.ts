import { ShardIdentifier, type ShardingStrategy, systemClock } from '@framework/core';
import { Account, SuiteContext, firstShard, otherDatabaseShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { groupCommit } from './fixtures/group-commit.js';
import { openRegistry } from './fixtures/open-registry.js';
import { PgAccountRepository } from './fixtures/pg-account-repository.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { query } from './fixtures/query.js';

const shards = [firstShard, otherDatabaseShard] as const;
/** A shard that exists only in the bits of the ids: a strategy that reads the bits finds no database. */
const inTheBits = ShardIdentifier.of(77, 7);

/** Places an account by a hash of its id. */
const byHash: ShardingStrategy<Account> = {
  shardOfModel: ({ id }) => shardOfHash(id.value),
  shardOfId: shardOfHash,
};

/** Places an account by its owner, which is not in its id. */
const byOwner: ShardingStrategy<Account> = {
  shardOfModel: ({ owner }) => (owner === 'far away' ? otherDatabaseShard : firstShard),
  shardOfId: () => undefined,
};

describe('a custom sharding strategy', () => {
  let databases: readonly TestDatabase[];
  beforeAll(async () => {
    databases = await Promise.all(shards.map(() => createTestDatabase()));
  });
  afterAll(() => Promise.all(databases.map((database) => database.drop())));

  let suite: SuiteContext;
  const useStrategy = async (strategy: ShardingStrategy<Account>): Promise<void> => {
    const registry = openRegistry(
      shards.map(({ group, member }, index) => ({ group, member, url: databases[index]!.url })),
    );
    await registry.ready();
    const fixture = new PgFixture(registry);
    suite = new SuiteContext();
    const accounts = new PgAccountRepository(registry, strategy);
    suite.open(Object.assign(fixture, { accounts }), { groupCommit });
    await suite.fixture.clear();
  };
  const rowsOf = async (shard: ShardIdentifier): Promise<readonly string[]> => {
    const rows = await query<{ id: string }>(
      databases[shards.indexOf(shard)]!.url,
      'select id from accounts',
    );
    return rows.map(({ id }) => id);
  };

  describe('by a hash of the id', () => {
    beforeEach(() => useStrategy(byHash));

    test('places rows and events, and finds them by id', async () => {
      const accounts = await suite.store(...accountsOf(20));
      for (const shard of shards) {
        const expected = accounts
          .filter(({ id }) => shardOfHash(id.value) === shard)
          .map(({ id }) => id.value);
        expect(expected).not.toEqual([]);
        expect((await rowsOf(shard)).toSorted()).toEqual(expected.toSorted());
        const events = await suite.storedEvents(shard);
        expect(new Set(events.map(({ modelId }) => modelId))).toEqual(new Set(expected));
      }
      expect(await suite.accounts.findAllByIds(accounts.map(({ id }) => id))).toEqual(accounts);
      for (const account of accounts) expect(await suite.accounts.getById(account.id)).toEqual(account);
      expect(await suite.accounts.findAll()).toEqual(accounts);
    });

    test('updates the row in place', async () => {
      const [account] = await suite.store(...accountsOf(1));
      const credited = await suite.credit(account!, '1');
      expect(await suite.accounts.getById(account!.id)).toEqual(credited);
    });
  });

  describe('by a column', () => {
    beforeEach(() => useStrategy(byOwner));

    test('places rows, and finds them by a condition on all shards', async () => {
      const near = Account.open(inTheBits, systemClock.now(), { owner: 'near' });
      const far = Account.open(inTheBits, systemClock.now(), { owner: 'far away' });
      const stored = await suite.store(near, far);
      expect(await rowsOf(firstShard)).toEqual([near.id.value]);
      expect(await rowsOf(otherDatabaseShard)).toEqual([far.id.value]);
      expect(await suite.accounts.findAll()).toEqual(stored);
      expect(await suite.accounts.findOneByOwner('far away')).toEqual(stored[1]);
      expect(await suite.accounts.count()).toBe(2);
      expect((await suite.accounts.findPage({ limit: 1 })).items).toEqual([stored[0]]);
    });

    test('refuses reads by id', async () => {
      const [account] = await suite.store(Account.open(inTheBits, systemClock.now()));
      const refusal = { code: 'shard-undetermined', model: 'Account', id: account.id.value };
      await expect(suite.accounts.getById(account.id)).rejects.toMatchObject(refusal);
      await expect(suite.accounts.findById(account.id)).rejects.toMatchObject(refusal);
      await expect(suite.accounts.existsById(account.id)).rejects.toMatchObject(refusal);
      await expect(suite.accounts.findAllByIds([account.id])).rejects.toMatchObject(refusal);
    });

    test('updates the row in place', async () => {
      const [account] = await suite.store(Account.open(inTheBits, systemClock.now(), { owner: 'far away' }));
      await suite.stage((plan) => plan.update(account.credit('1')));
      expect(await suite.accounts.findOneByOwner('far away')).toMatchObject({ version: 2 });
      expect(await suite.storedEvents(otherDatabaseShard)).toHaveLength(2);
    });
  });
});

function accountsOf(count: number): readonly Account[] {
  return Array.from({ length: count }, () => Account.open(inTheBits, systemClock.now()));
}

function shardOfHash(id: string): ShardIdentifier {
  const last = Number.parseInt(id.at(-1) ?? '0', 16);
  return last % 2 === 0 ? firstShard : otherDatabaseShard;
}
