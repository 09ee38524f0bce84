import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { unavailable, unsearched } from '../../test/counting-executor.js';
import {
  type TestExecutor,
  executorOf,
  global,
  mexico,
  openWallet,
  principal,
} from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { Action } from '../action/action.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import { FrameworkAction } from '../action/framework-action.js';
import { systemClock } from '../clock.js';
import { shardedIdCodec } from '../id/id-codec.js';
import type { Id } from '../id/id.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';

const storedFields = {
  state: 'OPENED',
  createdDate: new Date(0),
  ownerId: 'owner-1',
  balance: 1n,
  version: 1,
} as const;

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
  const wallet = new Wallet({ ...storedFields, id: openWallet(mexico).id });
  let performed = 0;
  class LaterDueAction extends Action<{ readonly from: Id<Wallet>; readonly to: Id<Wallet> }, string> {
    protected async perform(): Promise<string> {
      const isFirst = ++performed === 1;
      if (readsAtFirst || !isFirst) for (const shard of turnsTo) running.databases.transactionManager(shard);
      if (isFirst) return 'nothing to do';
      this.plan().update(wallet);
      return 'paid';
    }
  }
  const id = shardedIdCodec(Wallet);
  FrameworkAction({ params: z.object({ from: id, to: id }), result: z.string() })(LaterDueAction);
  const running: TestExecutor = executorOf(async () => undefined, {
    actions: [new LaterDueAction(systemClock)],
  });
  const params = { from: openWallet(global).id, to: wallet.id };
  return {
    ...running,
    once: (configuration) => running.executor.execute(principal, LaterDueAction, params, configuration),
  };
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
  class PaidEarlierAction extends Action<null, string> {
    protected async perform(): Promise<string> {
      for (const shard of turnsTo) running.databases.transactionManager(shard);
      if (++performed > 1) return 'nothing to do';
      this.plan().add(openWallet(mexico));
      return 'paid';
    }
  }
  FrameworkAction({ params: z.null(), result: z.string() })(PaidEarlierAction);
  const running: TestExecutor = executorOf(async () => undefined, {
    actions: [new PaidEarlierAction(systemClock)],
  });
  return {
    ...running,
    once: () => running.executor.execute(principal, PaidEarlierAction, null, unsearched),
  };
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
