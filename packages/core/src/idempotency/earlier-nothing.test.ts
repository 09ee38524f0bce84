import { describe, expect, test } from 'vitest';
import { unavailable, unsearched } from '../../test/counting-executor.js';
import {
  ResultAction,
  type TestExecutor,
  executorOf,
  global,
  mexico,
  openWallet,
  writtenWallet,
} from '../../test/test-executor.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';

interface LaterDue {
  /** Which shards each perform accesses, in order. */
  readonly turnsTo?: readonly ShardIdentifier[];
  /** Whether the first perform, which has nothing to do, accesses them as well. Default true. */
  readonly readsAtFirst?: boolean;
}

/** Names a wallet of each shard, has nothing to do the first time, and later changes the one in Mexico. */
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

describe('a repeat that has an effect, of a request that had nothing to do', () => {
  test.each([
    ['the shard of the effect', [mexico], mexico],
    ['another shard and then that of the effect', [global, mexico], global],
    ['that of the effect and then another one', [mexico, global], mexico],
  ])('gets the first result, without a search before, when it reads %s', async (_what, turnsTo, shard) => {
    const { once, driver } = laterDue({ turnsTo });
    expect(await once(unsearched)).toBe('nothing to do');
    expect(await once(unsearched)).toBe('nothing to do');
    expect(driver.committed).toMatchObject([{ shard }]);
  });

  test.each([
    ['reads the shard of the effect', [mexico]],
    ['reads nothing', []],
  ])('gets the first result, without a search before, when only the repeat %s', async (_what, turnsTo) => {
    const { once, driver } = laterDue({ turnsTo, readsAtFirst: false });
    expect(await once(unsearched)).toBe('nothing to do');
    expect(await once(unsearched)).toBe('nothing to do');
    expect(driver.committed).toMatchObject([{ shard: global }]);
  });
});

describe('an effect', () => {
  test('does not wait long for a shard that it has not accessed, and needs no answer from it', async () => {
    const { once, manager, driver } = laterDue({ turnsTo: [mexico] });
    await once(unsearched);
    manager(global).keys.waits.length = 0;
    manager(global).keys.findFailures.push(unavailable);
    expect(await once({ ...unsearched, idempotencyKey: 'key-2' })).toBe('paid');
    expect(manager(global).keys.waits).toEqual([100]);
    expect(driver.committed).toHaveLength(2);
  });

  test('needs an answer from the shard that it has accessed first', async () => {
    const { once, manager, driver } = laterDue({ turnsTo: [global, mexico] });
    await once(unsearched);
    manager(global).keys.waits.length = 0;
    manager(global).keys.findFailures.push(unavailable);
    await expect(once({ ...unsearched, idempotencyKey: 'key-2' })).rejects.toBe(unavailable);
    expect(manager(global).keys.waits).toEqual([undefined]);
    expect(driver.committed).toHaveLength(1);
  });

  test('asks no shard that it has not accessed a second time', async () => {
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

describe('a repeat that has nothing to do, of a request that had an effect', () => {
  test.each([
    ['another shard', [global]],
    ['nothing', []],
  ])('gets the first result, without a search before, when it reads %s', async (_what, turnsTo) => {
    const { once, driver } = paidEarlier(turnsTo);
    expect(await once()).toBe('paid');
    expect(await once()).toBe('paid');
    expect(driver.committed).toMatchObject([{ shard: mexico }]);
  });
});
