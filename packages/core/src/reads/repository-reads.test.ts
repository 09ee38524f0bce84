import { describe, expect, test } from 'vitest';

import { FakeDriver, type FakeTransactionManager, openFakeDatabases } from '../../test/fake-databases.js';
import { FakeRepository } from '../../test/fake-repository.js';
import { holdCommits } from '../../test/hold-commits.js';
import { ManualClock, settled } from '../../test/manual-clock.js';
import { databaseConfig, memberConfig } from '../../test/sharding-configs.js';
import { executorOf, global, mexico, openWallet, writtenWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { ShardedId } from '../id/id.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { type DatabaseRegistry, openDatabases } from '../storage/database-registry.js';
import type { ModelSource, ShardingStrategy } from '../storage/repository.js';
import type { TransactionManager } from '../storage/transaction-manager.js';
import { EmbeddedBitsShardingStrategy, RepositoryReads } from './repository-reads.js';

/** Reads wallets that a test has put there, and records which ids it was asked for on which shards. */
class Wallets extends RepositoryReads<Wallet, FakeTransactionManager> {
  readonly asked: (readonly [shard: ShardIdentifier, what: string | readonly string[]])[] = [];
  sourceCount = 0;
  readonly #stored = new Map<string, Wallet>();

  store(...wallets: readonly Wallet[]): void {
    for (const wallet of wallets) this.#stored.set(wallet.id.value, wallet);
  }

  protected own(manager: TransactionManager): FakeTransactionManager {
    return manager as FakeTransactionManager;
  }

  protected sourceOf({ shard }: FakeTransactionManager): ModelSource<Wallet> {
    this.sourceCount++;
    return {
      model: Wallet,
      readOne: async (id) => {
        this.asked.push([shard, id]);
        return this.#stored.get(id);
      },
      readSeveral: async (ids) => {
        this.asked.push([shard, ids]);
        const found = [...this.#stored].filter(([id]) => ids.includes(id));
        return new Map(found.map(([id, wallet]) => [id, () => wallet]));
      },
    };
  }

  override eachDatabase(): readonly FakeTransactionManager[] {
    return super.eachDatabase();
  }

  override databaseOf(shard: ShardIdentifier): FakeTransactionManager {
    return super.databaseOf(shard);
  }

  override upTo<T>(read: (limit: number) => Promise<readonly T[]>, rowsMax?: number): Promise<readonly T[]> {
    return super.upTo(read, rowsMax);
  }
}

const neighbour = ShardIdentifier.of(0, 1);
const elsewhere = ShardIdentifier.of(9, 9);

/** A repository on the databases of two shards. */
function repository(strategy?: ShardingStrategy<Wallet>): {
  readonly wallets: Wallets;
  readonly databases: DatabaseRegistry;
  readonly driver: FakeDriver;
  readonly manager: (shard: ShardIdentifier) => FakeTransactionManager;
} {
  const opened = openFakeDatabases(global, mexico);
  return { ...opened, wallets: new Wallets({ model: Wallet, databases: opened.databases, strategy }) };
}

const undetermined: ShardingStrategy<Wallet> = { shardOfModel: () => mexico, shardOfId: () => undefined };

describe('a read by id', () => {
  test.each([global, mexico])('asks the shard that the id carries: %s', async (shard) => {
    const { wallets } = repository();
    const wallet = writtenWallet(shard);
    wallets.store(wallet);
    expect(await wallets.findById(wallet.id)).toBe(wallet);
    expect(wallets.asked).toEqual([[shard, wallet.id.value]]);
  });

  test('asks the shard that a custom strategy finds for the id', async () => {
    const { wallets } = repository({ shardOfModel: () => mexico, shardOfId: () => mexico });
    const wallet = writtenWallet(global);
    wallets.store(wallet);
    expect(await wallets.getById(wallet.id.value)).toBe(wallet);
    expect(wallets.asked).toEqual([[mexico, wallet.id.value]]);
  });

  test.each<[string, (wallets: Wallets) => Promise<unknown>]>([
    ['getById', (wallets) => wallets.getById('a')],
    ['findById', (wallets) => wallets.findById('a')],
    ['existsById', (wallets) => wallets.existsById('a')],
    ['findAllByIds', (wallets) => wallets.findAllByIds(['a'])],
  ])('is refused when the strategy cannot tell the shard from the id: %s', async (_name, read) => {
    const { wallets } = repository(undetermined);
    await expect(read(wallets)).rejects.toMatchObject({
      code: 'shard-undetermined',
      model: 'Wallet',
      id: 'a',
    });
    expect(wallets.asked).toEqual([]);
  });

  test('is refused when the shard of the id is not configured', async () => {
    const { wallets } = repository();
    const { id } = openWallet(elsewhere);
    await expect(wallets.findById(id)).rejects.toMatchObject({ code: 'unknown-shard' });
  });

  test('does not find a missing model, which each method reports in its own way', async () => {
    const { wallets } = repository();
    const { id } = openWallet();
    expect(await wallets.findById(id)).toBeUndefined();
    expect(await wallets.existsById(id)).toBe(false);
    await expect(wallets.getById(id)).rejects.toMatchObject({ code: 'entity-not-found' });
    const wallet = writtenWallet();
    wallets.store(wallet);
    expect(await wallets.existsById(wallet.id)).toBe(true);
  });

  test('reads a UUID in lower case, and every other text as it is', async () => {
    const { wallets } = repository({ shardOfModel: () => global, shardOfId: () => global });
    const wallet = writtenWallet();
    wallets.store(wallet);
    expect(await wallets.findById(wallet.id.value.toUpperCase())).toBe(wallet);
    expect(await wallets.findAllByIds([wallet.id.value.toUpperCase()])).toEqual([wallet]);
    await wallets.findById('Order 1');
    expect(wallets.asked.map(([, what]) => what)).toEqual([wallet.id.value, [wallet.id.value], 'Order 1']);
  });

  test('has one source for each shard, however often it is read', async () => {
    const { wallets } = repository();
    for (const shard of [global, mexico, global, mexico]) await wallets.findById(openWallet(shard).id);
    await wallets.findAllByIds([openWallet(global).id, openWallet(mexico).id]);
    expect(wallets.sourceCount).toBe(2);
  });

  test('tells the registry each time, so that an execution is recorded where it read', async () => {
    const { wallets, databases, driver } = repository();
    const running = executorOf(async (_plan, id) => wallets.existsById(id as string), { databases });
    const { value } = writtenWallet(mexico).id;
    await running.execute(value);
    await running.execute(value);
    expect(driver.committed.map(({ shard }) => shard)).toEqual([mexico, mexico]);
  });
});

describe('a read by several ids', () => {
  test('returns the models of all shards in the order of the ids, without missing ones', async () => {
    const { wallets } = repository();
    const [one, other, third] = [writtenWallet(mexico), writtenWallet(global), writtenWallet(mexico)];
    wallets.store(third, other, one);
    const ids = [one, other, openWallet(global), third, openWallet(mexico), one].map(({ id }) => id);
    expect(await wallets.findAllByIds(ids)).toEqual([one, other, third, one]);
  });

  test('refuses one id in place of a list', async () => {
    const { id } = openWallet(global);
    await expect(repository().wallets.findAllByIds(id as unknown as [])).rejects.toMatchObject({
      code: 'invariant-violation',
      message: expect.stringContaining('pass a list of ids'),
    });
  });

  test('asks each shard once', async () => {
    const { wallets } = repository();
    const ids = [mexico, global, mexico].map((shard) => openWallet(shard).id.value);
    await wallets.findAllByIds(ids);
    expect(wallets.asked).toEqual([
      [mexico, [ids[0], ids[2]]],
      [global, [ids[1]]],
    ]);
  });
});

/** An executor whose action reads a wallet from the repository, and stages a deposit if its params say so. */
function grouped(
  { wallets, databases }: ReturnType<typeof repository>,
  read: (wallet: Wallet) => Promise<Wallet | undefined>,
): ReturnType<typeof executorOf> {
  return executorOf(
    async (plan, params) => {
      const { wallet, deposits } = params as { readonly wallet: Wallet; readonly deposits: boolean };
      return deposits ? plan().update((await wallets.getById(wallet.id)).deposit(1n)) : read(wallet);
    },
    { databases, groupCommit: true, clock: new ManualClock(), repositories: [new FakeRepository(Wallet)] },
  );
}

const reads: readonly (readonly [
  string,
  (wallets: Wallets, wallet: Wallet) => Promise<Wallet | undefined>,
])[] = [
  ['one', (wallets, { id }) => wallets.getById(id)],
  ['several', async (wallets, { id }) => (await wallets.findAllByIds([id]))[0]],
];

describe('reads by id of executions', () => {
  test('are one statement when they come at the same time', async () => {
    const { wallets, databases } = repository();
    const stored = Array.from({ length: 3 }, () => writtenWallet());
    wallets.store(...stored);
    const running = executorOf(async (_plan, params) => wallets.getById((params as Wallet).id), {
      databases,
    });
    expect(await Promise.all(stored.map((wallet) => running.execute(wallet)))).toEqual(stored);
    expect(wallets.asked).toEqual([[global, stored.map(({ id }) => id.value)]]);
  });

  test.each(reads)(
    'see the version that another execution has staged but not committed yet: %s',
    async (_how, read) => {
      const opened = repository();
      const wallet = writtenWallet();
      opened.wallets.store(wallet);
      const running = grouped(opened, (each) => read(opened.wallets, each));
      const release = holdCommits(opened.manager(global));
      const depositing = running.execute({ wallet, deposits: true });
      await settled();
      const reading = running.execute({ wallet, deposits: false });
      await settled();
      release();
      await depositing;
      expect(await reading).toMatchObject({ version: 2 });
    },
  );
});

describe('a read within a transaction', () => {
  test.each(reads)(
    'sees what the transaction sees, and no version that is only staged: %s',
    async (_how, read) => {
      const opened = repository();
      const wallet = writtenWallet();
      opened.wallets.store(wallet);
      const running = grouped(opened, (each) => read(opened.wallets, each));
      const release = holdCommits(opened.manager(global));
      const depositing = running.execute({ wallet, deposits: true });
      await settled();
      opened.manager(global).isInside = true;
      const reading = running.execute({ wallet, deposits: false });
      await settled();
      release();
      await depositing;
      expect(await reading).toBe(wallet);
    },
  );

  test('is not combined with others', async () => {
    const { wallets, databases, manager } = repository();
    const stored = [writtenWallet(), writtenWallet()];
    wallets.store(...stored);
    manager(global).isInside = true;
    const running = executorOf(async (_plan, params) => wallets.getById((params as Wallet).id), {
      databases,
    });
    await Promise.all(stored.map((wallet) => running.execute(wallet)));
    expect(wallets.asked).toEqual(stored.map(({ id }) => [global, id.value]));
  });
});

/** Two shards in one database, and one in another. */
function sharedDatabase(): {
  readonly wallets: Wallets;
  readonly manager: (shard: ShardIdentifier) => FakeTransactionManager;
} {
  const members = [global, neighbour].map((shard) => memberConfig(shard, [databaseConfig()]));
  const config = { defaultShard: global, members: [...members, memberConfig(mexico)] };
  const databases = openDatabases(config, new FakeDriver());
  const manager = (shard: ShardIdentifier): FakeTransactionManager =>
    databases.transactionManager(shard) as FakeTransactionManager;
  return { wallets: new Wallets({ model: Wallet, databases }), manager };
}

describe('the manager of a database', () => {
  test('is that of its first shard when every database is asked', () => {
    const { wallets } = sharedDatabase();
    expect(wallets.eachDatabase().map(({ shard }) => shard)).toEqual([global, mexico]);
  });

  test('is that of the shard itself when the database of one shard is asked', () => {
    const { wallets } = sharedDatabase();
    expect([neighbour, mexico].map((shard) => wallets.databaseOf(shard).shard)).toEqual([neighbour, mexico]);
  });

  test('is the one in whose transaction the caller runs', () => {
    const { wallets, manager } = sharedDatabase();
    manager(neighbour).isInside = true;
    expect(wallets.eachDatabase().map(({ shard }) => shard)).toEqual([neighbour, mexico]);
    expect(wallets.databaseOf(global).shard).toBe(neighbour);
  });

  test("is that of the shard's own transaction within another one on the same database", () => {
    const { wallets, manager } = sharedDatabase();
    for (const shard of [global, neighbour]) manager(shard).isInside = true;
    expect([global, neighbour].map((shard) => wallets.databaseOf(shard).shard)).toEqual([global, neighbour]);
  });

  test('is refused for a shard that is not configured', () => {
    expect(() => sharedDatabase().wallets.databaseOf(elsewhere)).toThrow(
      expect.objectContaining({ code: 'unknown-shard' }),
    );
  });
});

/** Returns as many items as are requested, out of this many. */
function firstOf(count: number): (limit: number) => Promise<readonly number[]> {
  return async (limit) => Array.from({ length: Math.min(count, limit) }, (_item, index) => index);
}

describe('a list', () => {
  test('may have as many items as its limit', async () => {
    const { wallets } = repository();
    expect(await wallets.upTo(firstOf(3), 3)).toEqual([0, 1, 2]);
    expect(await wallets.upTo(firstOf(0), 0)).toEqual([]);
  });

  test('is refused when it has one item more than its limit, and no further items are read', async () => {
    const { wallets } = repository();
    const limits: number[] = [];
    const read = (limit: number): Promise<readonly number[]> => {
      limits.push(limit);
      return firstOf(100)(limit);
    };
    await expect(wallets.upTo(read, 3)).rejects.toMatchObject({
      code: 'limit-exceeded',
      limit: 'rowsMax',
      maximum: 3,
    });
    expect(limits).toEqual([4]);
  });

  test('has at most 10,000 items by default', async () => {
    const { wallets } = repository();
    expect(await wallets.upTo(firstOf(10_000))).toHaveLength(10_000);
    await expect(wallets.upTo(firstOf(10_001))).rejects.toMatchObject({ maximum: 10_000 });
  });
});

describe('EmbeddedBitsShardingStrategy', () => {
  const strategy = new EmbeddedBitsShardingStrategy();

  test('finds the shard of an id and of a model in the bits of the id', () => {
    const shard = ShardIdentifier.of(200, 33);
    const wallet = Wallet.open(shard, 1n, new Date(0));
    expect(strategy.shardOfModel(wallet)).toBe(shard);
    expect(strategy.shardOfId(ShardedId.generate(Wallet, shard).value)).toBe(shard);
  });

  test('refuses an id that carries no shard', () => {
    expect(() => strategy.shardOfId('wallet-1')).toThrow(expect.objectContaining({ code: 'invalid-id' }));
  });
});

test('an executor refuses a repository that reads other databases', () => {
  const { databases } = openFakeDatabases(global, mexico);
  const wallets = Object.assign(new FakeRepository(Wallet), { databases });
  expect(() => executorOf(async () => null, { repositories: [wallets] })).toThrow(
    expect.objectContaining({
      code: 'invariant-violation',
      message: expect.stringMatching(/Wallet reads other databases .*same registry/),
    }),
  );
  expect(() => executorOf(async () => null, { repositories: [wallets], databases })).not.toThrow();
});

test('an executor refuses models of another copy of the framework by name', () => {
  class Purse {
    readonly version = 1;
  }
  const purses = new FakeRepository(Purse as never);
  expect(() => executorOf(async () => null, { repositories: [purses] })).toThrow(
    expect.objectContaining({
      code: 'invariant-violation',
      message: expect.stringMatching(/^Purse extends no Entity .*install one copy only/),
    }),
  );
});
