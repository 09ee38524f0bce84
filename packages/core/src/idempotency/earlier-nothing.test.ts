import { describe, expect, test } from 'vitest';

import { key, unavailable, unsearched } from '../../test/counting-executor.js';
import { openFakeDatabases } from '../../test/fake-databases.js';
import { holdCommits } from '../../test/hold-commits.js';
import { settled } from '../../test/manual-clock.js';
import {
  ResultAction,
  type TestExecutor,
  executorOf,
  global,
  mexico,
  openWallet,
  storedWallet,
  writtenWallet,
} from '../../test/test-executor.js';
import { PatientClock } from '../../test/virtual-clock.js';
import type { Wallet } from '../../test/wallet.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import { ShardIdentifier } from '../id/shard-identifier.js';

interface LaterDue {
  /** Which shards each perform accesses, in order. */
  readonly turnsTo?: readonly ShardIdentifier[];
  /** Whether the first perform, which has nothing to do, also accesses them. Default true. */
  readonly readsAtFirst?: boolean;
}

/** An action with a wallet on each shard in its params. It first has nothing to do, and later changes the wallet in Mexico. */
function laterDue({ turnsTo = [], readsAtFirst = true }: LaterDue): TestExecutor & {
  readonly once: (configuration: ExecutionConfiguration) => Promise<unknown>;
} {
  const wallet = writtenWallet(mexico);
  let performed = 0;
  const running = executorOf(
    async (plan) => {
      const isFirst = ++performed === 1;
      if (readsAtFirst || !isFirst) for (const shard of turnsTo) running.databases.transactionManager(shard);
      if (isFirst) return 'nothing to do';
      plan().update(wallet);
      return 'paid';
    },
    {},
    ResultAction,
  );
  const params = { from: openWallet(global).id, to: wallet.id };
  return { ...running, once: (configuration) => running.execute(params, configuration) };
}

describe('a request that has an effect only when repeated', () => {
  test.each([
    ['the shard of the effect', [mexico], mexico],
    ['another shard and then the shard of the effect', [global, mexico], global],
    ['the shard of the effect and then another one', [mexico, global], mexico],
  ])('returns the first result without an earlier search when it reads %s', async (_what, turnsTo, shard) => {
    const { once, driver } = laterDue({ turnsTo });
    expect(await once(unsearched)).toBe('nothing to do');
    expect(await once(unsearched)).toBe('nothing to do');
    expect(driver.committed).toMatchObject([{ shard }]);
  });

  test.each([
    ['reads the shard of the effect', [mexico]],
    ['reads nothing', []],
  ])('returns the first result without an earlier search when only the repeat %s', async (_what, turnsTo) => {
    const { once, driver } = laterDue({ turnsTo, readsAtFirst: false });
    expect(await once(unsearched)).toBe('nothing to do');
    expect(await once(unsearched)).toBe('nothing to do');
    expect(driver.committed).toMatchObject([{ shard: global }]);
  });

  test('returns the first result when only the repeat reads, on another shard', async () => {
    const peru = ShardIdentifier.of(2, 0);
    const { databases, driver } = openFakeDatabases(global, mexico, peru);
    let performed = 0;
    const { execute } = executorOf(
      async (plan) => {
        if (++performed === 1) return 'nothing to do';
        databases.transactionManager(mexico);
        plan().add(openWallet(peru));
        return 'paid';
      },
      { databases },
      ResultAction,
    );
    expect(await execute(null, unsearched)).toBe('nothing to do');
    expect(await execute(null, unsearched)).toBe('nothing to do');
    expect(driver.committed).toMatchObject([{ shard: global }]);
  });
});

describe('an execution with an effect', () => {
  test('does not wait long for a shard that it has not accessed, nor need its answer', async () => {
    const { once, manager, driver } = laterDue({ turnsTo: [mexico] });
    await once(unsearched);
    manager(global).keys.waits.length = 0;
    manager(global).keys.findFailures.push(unavailable);
    expect(await once({ ...unsearched, idempotencyKey: 'key-2' })).toBe('paid');
    expect(manager(global).keys.waits).toEqual([100]);
    expect(driver.committed).toHaveLength(2);
  });

  test('needs an answer from the shard that it accessed first', async () => {
    const { once, manager, driver } = laterDue({ turnsTo: [global, mexico] });
    await once(unsearched);
    manager(global).keys.waits.length = 0;
    manager(global).keys.findFailures.push(unavailable);
    await expect(once({ ...unsearched, idempotencyKey: 'key-2' })).rejects.toBe(unavailable);
    expect(manager(global).keys.waits).toEqual([undefined]);
    expect(driver.committed).toHaveLength(1);
  });

  test.each<[string, readonly ShardIdentifier[], ShardIdentifier, number]>([
    ['asks its own shard only by writing there, if it accesses that one first', [mexico], mexico, 0],
    ['asks another shard once, if it accesses that one first', [global, mexico], global, 1],
  ])('%s', async (_what, turnsTo, shard, count) => {
    const { once, manager } = laterDue({ turnsTo });
    await once(unsearched);
    manager(shard).keys.waits.length = 0;
    expect(await once({ ...unsearched, idempotencyKey: 'key-2' })).toBe('paid');
    expect(manager(shard).keys.waits).toHaveLength(count);
  });

  test('asks each shard that it has not accessed at most once', async () => {
    const { once, manager } = laterDue({ turnsTo: [mexico] });
    await once(unsearched);
    manager(global).keys.waits.length = 0;
    expect(await once({ idempotencyKey: 'key-2' })).toBe('paid');
    expect(manager(global).keys.waits).toEqual([100]);
  });
});

/** Pays on the shard in Mexico the first time, and later has nothing to do. */
function paidEarlier(turnsTo: readonly ShardIdentifier[]): TestExecutor & {
  readonly once: () => Promise<unknown>;
} {
  let performed = 0;
  const running = executorOf(
    async (plan) => {
      for (const shard of turnsTo) running.databases.transactionManager(shard);
      if (++performed > 1) return 'nothing to do';
      plan().add(openWallet(mexico));
      return 'paid';
    },
    {},
    ResultAction,
  );
  return { ...running, once: () => running.execute(null, unsearched) };
}

describe('a request that has nothing to do when repeated', () => {
  test.each([
    ['another shard', [global]],
    ['nothing', []],
  ])('returns the first result without an earlier search when it reads %s', async (_what, turnsTo) => {
    const { once, driver } = paidEarlier(turnsTo);
    expect(await once()).toBe('paid');
    expect(await once()).toBe('paid');
    expect(driver.committed).toMatchObject([{ shard: mexico }]);
  });

  test('returns the first result when it is committed on a later shard meanwhile', async () => {
    const gate = Promise.withResolvers<void>();
    let performed = 0;
    const { execute, databases, driver } = executorOf(
      async (plan) => {
        for (const shard of [global, mexico]) databases.transactionManager(shard);
        if (++performed === 1) {
          await gate.promise;
          return 'nothing to do';
        }
        plan().add(openWallet(mexico));
        return 'paid';
      },
      {},
      ResultAction,
    );
    const slow = execute(null, key);
    await settled();
    expect(await execute(null, key)).toBe('paid');
    gate.resolve();
    expect(await slow).toBe('paid');
    expect(driver.committed).toMatchObject([{ shard: mexico }]);
  });

  test('returns the first result when it read the model before the commit', async () => {
    const running = executorOf(
      async (plan, params) => {
        for (const shard of [global, mexico]) running.databases.transactionManager(shard);
        const wallet = await running.wallets.getById((params as Wallet).id);
        if (wallet.balance > 100n) return 'nothing to do';
        plan().update(wallet.deposit(1n));
        return 'paid';
      },
      { groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') },
      ResultAction,
    );
    const wallet = storedWallet(running, mexico);
    const release = holdCommits(running.manager(mexico));
    const first = running.execute(wallet, key);
    await settled();
    const repeat = running.execute(wallet, key);
    await settled();
    release();
    expect(await Promise.all([first, repeat])).toEqual(['paid', 'paid']);
    expect(running.driver.committed).toMatchObject([{ shard: mexico }]);
  });
});
