import { describe, expect, test } from 'vitest';

import { FakeDriver, type FakeTransactionManager } from '../../test/fake-databases.js';
import { FakeRepository } from '../../test/fake-repository.js';
import { holdCommits } from '../../test/hold-commits.js';
import { ManualClock, settled } from '../../test/manual-clock.js';
import { databaseConfig, memberConfig } from '../../test/sharding-configs.js';
import { executorOf, global, openWallet, storedWallet, writtenWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { openDatabases } from '../storage/database-registry.js';
import type { ModelSource } from '../storage/repository.js';
import { StaleRecordError } from '../storage/storage-errors.js';
import { readById, readByIds } from './read-batcher.js';

const once = { retry: { attemptsMax: 1 } };

/** What another process has written meanwhile. */
const nextVersionOf = ({ id, createdDate, state, ownerId }: Wallet): Wallet =>
  new Wallet({ id, createdDate, state, ownerId, balance: 500n, version: 2 });

describe('reads by id', () => {
  test('of executions that run at the same time are one statement', async () => {
    const running = executorOf(async (_plan, params) => running.wallets.getById((params as Wallet).id));
    const wallets = Array.from({ length: 3 }, () => storedWallet(running));
    const read = await Promise.all(wallets.map((wallet) => running.execute(wallet)));
    expect(read).toEqual(wallets);
    expect(running.wallets.reads).toBe(1);
  });

  test.each(['one', 'several'])(
    'that begin when perform has ended see only what is committed (reads %s)',
    async (how) => {
      const gate = Promise.withResolvers<void>();
      const late: Promise<Wallet | undefined>[] = [];
      const running = executorOf(
        async (plan, params) => {
          const { id } = params as Wallet;
          const afterwards = async (): Promise<Wallet | undefined> => {
            await gate.promise;
            return how === 'one'
              ? running.wallets.getById(id)
              : (await running.wallets.findAllByIds([id]))[0];
          };
          late.push(afterwards());
          return plan().update((await running.wallets.getById(id)).deposit(1n));
        },
        { groupCommit: true, clock: new ManualClock() },
      );
      const wallet = storedWallet(running);
      const release = holdCommits(running.manager(global));
      const execution = running.execute(wallet, once);
      await settled();
      gate.resolve();
      expect(await late[0]).toBe(wallet);
      release();
      await execution;
    },
  );

  test.each([true, false])('leave out models that are not there (grouped: %s)', async (groupCommit) => {
    const running = executorOf(
      async (_plan, params) =>
        running.wallets.findAllByIds((params as readonly Wallet[]).map(({ id }) => id)),
      { groupCommit },
    );
    const wallet = storedWallet(running);
    expect(await running.execute([openWallet(), wallet])).toEqual([wallet]);
    expect(await running.wallets.findAllByIds([openWallet().id, wallet.id])).toEqual([wallet]);
  });

  test('find a new model that is staged but not committed yet, if they may depend on it', async () => {
    const manual = new ManualClock();
    const running = executorOf(
      async (plan, params) => {
        const { how, wallet } = params as { readonly how: string; readonly wallet: Wallet };
        if (how === 'add') return void plan().add(wallet);
        return how === 'one' ? running.wallets.getById(wallet.id) : running.wallets.findAllByIds([wallet.id]);
      },
      { groupCommit: true, clock: manual },
    );
    const wallet = openWallet();
    const release = holdCommits(running.manager(global));
    const adding = running.execute({ how: 'add', wallet }, once);
    await settled();
    const several = running.execute({ how: 'several', wallet }, once);
    const notFound = running.execute({ how: 'one', wallet }, { ...once, groupCommit: false });
    notFound.catch(() => undefined);
    await settled();
    await manual.pass(1_000);
    await expect(notFound).rejects.toMatchObject({ code: 'entity-not-found' });
    release();
    await adding;
    expect(await several).toMatchObject([{ id: wallet.id, version: 1 }]);
  });

  test('see a version that another process has committed, not an older staged one', async () => {
    const running = executorOf(
      async (plan, params) => {
        const [wallet] = await running.wallets.findAllByIds([(params as Wallet).id]);
        seen.push(wallet!.balance);
        return plan().update(wallet!.deposit(1n));
      },
      { groupCommit: true, clock: new ManualClock() },
    );
    const seen: bigint[] = [];
    const wallet = storedWallet(running);
    const release = holdCommits(running.manager(global));
    const staged = running.execute(wallet, once);
    await settled();
    const { id, createdDate, state, ownerId } = wallet;
    running.wallets.store(new Wallet({ id, createdDate, state, ownerId, balance: 500n, version: 3 }));
    const next = running.execute(wallet, once);
    await settled();
    expect(seen).toEqual([100n, 500n]);
    release();
    await Promise.allSettled([staged, next]);
  });

  test('wait for a pending version that its repository cannot decode from a row, and do not depend on it', async () => {
    const manual = new ManualClock();
    const wallets = new FakeRepository(Wallet, { encode: () => ({}) });
    const [wallet, other] = [wallets.store(writtenWallet()), wallets.store(writtenWallet())];
    let performed = 0;
    const running = executorOf(
      async (plan, params) => {
        performed++;
        const read = await wallets.getById(wallet.id);
        return plan().update((params === 'other' ? other : read).deposit(1n));
      },
      { groupCommit: true, clock: manual, repositories: [wallets] },
    );
    const release = holdCommits(running.manager(global));
    running.manager(global).persistFailures.push(new Error('refused'));
    const refused = running.execute('wallet', once);
    refused.catch(() => undefined);
    await settled();
    const next = running.execute('other', once);
    await settled();
    await manual.pass(1_000);
    release();
    await expect(refused).rejects.toThrow('refused');
    expect(await next).toMatchObject({ version: 2 });
    expect(performed).toBe(2);
  });
});

describe('reads by id within an attempt', () => {
  test('return the same object, also together with others, and ask for it once', async () => {
    const running = executorOf(async (_plan, params) => {
      const [wallet, other] = params as readonly [Wallet, Wallet];
      const [one, same] = await Promise.all([
        running.wallets.getById(wallet.id),
        running.wallets.getById(wallet.id),
      ]);
      running.wallets.store(nextVersionOf(wallet));
      const later = await running.wallets.getById(wallet.id);
      const both = await running.wallets.findAllByIds([other.id, wallet.id]);
      return [one, same, later, ...both];
    });
    const [wallet, other] = [storedWallet(running), storedWallet(running)];
    const read = (await running.execute([wallet, other])) as readonly Wallet[];
    expect(new Set(read)).toEqual(new Set([wallet, other]));
    expect(read).toHaveLength(5);
    expect(running.wallets.reads).toBe(2);
  });

  test('do not find later what was missing', async () => {
    const running = executorOf(async (_plan, params) => {
      const wallet = params as Wallet;
      await running.wallets.getById(wallet.id).catch(() => undefined);
      running.wallets.store(wallet);
      await expect(running.wallets.getById(wallet.id)).rejects.toMatchObject({ code: 'entity-not-found' });
      return running.wallets.findAllByIds([wallet.id]);
    });
    expect(await running.execute(writtenWallet())).toEqual([]);
  });

  test('ask again after a read that failed', async () => {
    const wallet = writtenWallet();
    const failures = [new Error('the network is down')];
    const source: ModelSource<Wallet> = {
      model: Wallet,
      readOne: async () => {
        const failure = failures.pop();
        if (failure !== undefined) throw failure;
        return wallet;
      },
      readSeveral: async () => new Map(),
    };
    const { execute } = executorOf(async () => {
      await expect(readById(source, wallet.id.value)).rejects.toThrow('the network is down');
      return readById(source, wallet.id.value);
    });
    expect(await execute()).toBe(wallet);
  });

  test('do not leave out a model whose other read is under way and fails', async () => {
    const [failing, other] = [writtenWallet(), writtenWallet()];
    const gate = Promise.withResolvers<void>();
    const source: ModelSource<Wallet> = {
      model: Wallet,
      readOne: async () => {
        throw new Error('the network is down');
      },
      readSeveral: async () => {
        await gate.promise;
        return new Map([[other.id.value, () => other]]);
      },
    };
    const { execute } = executorOf(async () => {
      const one = readById(source, failing.id.value);
      const both = readByIds(source, [failing.id.value, other.id.value]);
      await expect(one).rejects.toThrow('the network is down');
      gate.resolve();
      return both;
    });
    await expect(execute()).rejects.toThrow('the network is down');
  });

  test('return the version that was read first, although a later one is staged', async () => {
    const gate = Promise.withResolvers<void>();
    const running = executorOf(
      async (plan, params) => {
        const { id, how } = params as { readonly id: Wallet['id']; readonly how: string };
        const wallet = await running.wallets.getById(id);
        if (how === 'write') return plan().update(wallet.deposit(1n));
        await gate.promise;
        return [wallet, await running.wallets.getById(id), ...(await running.wallets.findAllByIds([id]))];
      },
      { groupCommit: true, modelLocks: false, clock: new ManualClock() },
    );
    const wallet = storedWallet(running);
    const release = holdCommits(running.manager(global));
    const reading = running.execute({ id: wallet.id, how: 'read' }, once);
    await settled();
    const writing = running.execute({ id: wallet.id, how: 'write' }, once);
    await settled();
    gate.resolve();
    release();
    expect(await reading).toEqual([wallet, wallet, wallet]);
    await writing;
  });

  test('begin anew in the next attempt', async () => {
    const seen: bigint[] = [];
    const running = executorOf(async (plan, params) => {
      const wallet = await running.wallets.getById((params as Wallet).id);
      seen.push(wallet.balance);
      running.wallets.store(nextVersionOf(wallet));
      return plan().update(wallet.deposit(1n));
    });
    const wallet = storedWallet(running);
    running.manager(global).persistFailures.push(new StaleRecordError('Wallet', wallet.id.value, 1));
    await running.execute(wallet);
    expect(seen).toEqual([100n, 500n]);
  });
});

describe('the timeline of a shard', () => {
  test('at the first read of an attempt is part of the change set that the attempt commits', async () => {
    const running = executorOf(async (plan, params) => {
      running.databases.transactionManager(global);
      const wallet = await running.wallets.getById((params as Wallet).id);
      running.manager(global).timeline++;
      running.databases.transactionManager(global);
      return plan().update(wallet.deposit(1n));
    });
    const wallet = storedWallet(running);
    await running.execute(wallet);
    await running.execute(wallet);
    expect(running.driver.committed).toMatchObject([{ timeline: 1 }, { timeline: 2 }]);
  });

  test('is that of the primary config, whichever config is used first', async () => {
    const driver = new FakeDriver();
    const replica = databaseConfig({ name: 'replica', address: 'postgresql://replica/global' });
    const members = [memberConfig(global, [databaseConfig(), replica])];
    const databases = openDatabases({ defaultShard: global, members }, driver);
    const running = executorOf(
      async (plan) => {
        databases.transactionManager(global, 'replica');
        return plan().add(openWallet());
      },
      { databases },
    );
    (databases.transactionManager(global) as FakeTransactionManager).timeline = 3;
    await running.execute();
    expect(driver.committed).toMatchObject([{ timeline: 3 }]);
  });

  test('decides whether a pending version may be read', async () => {
    const running = executorOf(
      async (plan, params) => {
        running.databases.transactionManager(global);
        const wallet = await running.wallets.getById((params as Wallet).id);
        seen.push(wallet.version);
        return plan().update(wallet.deposit(1n));
      },
      { groupCommit: true, clock: new ManualClock() },
    );
    const seen: number[] = [];
    const wallet = storedWallet(running);
    const release = holdCommits(running.manager(global));
    const executions = [running.execute(wallet, once)];
    await settled();
    executions.push(running.execute(wallet, once));
    await settled();
    expect(seen).toEqual([1, 2]);
    running.manager(global).timeline++;
    executions.push(running.execute(wallet, once));
    await settled();
    expect(seen).toEqual([1, 2]);
    release();
    await Promise.all(executions);
    expect(seen).toHaveLength(3);
  });
});
