import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { key, unavailable, unsearched } from '../../test/counting-executor.js';
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
import { FrameworkAction } from '../action/framework-action.js';
import { systemClock } from '../clock.js';
import { InvariantViolation } from '../errors/invariant-violation.js';
import { TransientStorageException } from '../errors/storage-exceptions.js';
import { shardedIdCodec } from '../id/id-codec.js';
import type { Id } from '../id/id.js';
import type { ShardedId } from '../id/sharded-id.js';

const storedFields = {
  state: 'OPENED',
  createdDate: new Date(0),
  ownerId: 'owner-1',
  balance: 1n,
  version: 1,
} as const;

/** Executes an action that works once, and refuses its own repetition. */
function onceOnly(id: ShardedId<Wallet>): TestExecutor & { readonly refusal: Error } {
  const refusal = new Error('refused by the rules');
  let performed = 0;
  const running = executorOf(async (plan) => {
    if (++performed > 1) throw refusal;
    plan().update(new Wallet({ ...storedFields, id }));
  });
  return { ...running, refusal };
}

describe('a repeat that the rules refuse', () => {
  test.each([key, unsearched])('gets the first result', async (configuration) => {
    const { id } = openWallet(mexico);
    const { execute } = onceOnly(id);
    await execute({ id }, configuration);
    expect(await execute({ id }, configuration)).toBeUndefined();
  });

  test('is looked for on the shards that the params name, and nowhere else', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    await execute({ id }, unsearched);
    await execute({ id }, unsearched);
    expect([manager(global).keys.waits, manager(mexico).keys.waits]).toEqual([[], [undefined]]);
  });

  test('is looked for in every database when the params name no shard', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    await execute({}, unsearched);
    manager(global).keys.waits.length = 0;
    await execute({}, unsearched);
    expect([manager(global).keys.waits, manager(mexico).keys.waits]).toEqual([[100], [100]]);
  });

  test('is not reported as refused when its shard cannot tell', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    await execute({ id }, unsearched);
    manager(mexico).keys.findFailures.push(unavailable);
    await expect(execute({ id }, unsearched)).rejects.toBe(unavailable);
  });

  test('is answered by the shard of its effect, however long that takes and whatever the others do', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    const params = { id, other: openWallet(global).id };
    await execute(params, unsearched);
    manager(global).keys.findFailures.push(unavailable);
    expect(await execute(params, unsearched)).toBeUndefined();
    // Nobody waits for the others when the key is found.
    manager(global).keys.find = () => new Promise(() => undefined);
    expect(await execute(params, unsearched)).toBeUndefined();
    expect(manager(mexico).keys.waits).toEqual([undefined, undefined]);
  });

  test.each([unavailable, new TransientStorageException(mexico, 'the connection was lost')])(
    'is not reported as refused when one of the shards that it names cannot tell (%s)',
    async (failure) => {
      const { id } = openWallet(mexico);
      const { execute, manager } = onceOnly(id);
      const params = { id, other: openWallet(global).id };
      await execute(params, unsearched);
      manager(mexico).keys.findFailures.push(failure);
      await expect(execute(params, unsearched)).rejects.toMatchObject({
        code: 'shard-unavailable',
        shard: mexico,
      });
    },
  );

  test('is refused as before when there was no first one', async () => {
    const { id } = openWallet(mexico);
    const { execute, refusal } = onceOnly(id);
    await execute({ id }, unsearched);
    await expect(execute({ id }, { idempotencyKey: 'key-2' })).rejects.toBe(refusal);
  });
});

/** Reads a wallet in Mexico, and changes it the first time. */
function linked(repeated: () => unknown): TestExecutor & { readonly once: () => Promise<unknown> } {
  const wallet = new Wallet({ ...storedFields, id: openWallet(mexico).id });
  let performed = 0;
  class LinkedAction extends Action<{ readonly id: Id<Wallet> }, unknown> {
    protected async perform(): Promise<unknown> {
      // As every repository does to read.
      running.databases.transactionManager(mexico);
      if (++performed > 1) return repeated();
      this.plan().update(wallet);
      return 'paid';
    }
  }
  const params = z.object({ id: shardedIdCodec(Wallet) });
  FrameworkAction({ params, result: z.unknown() })(LinkedAction);
  const running: TestExecutor = executorOf(async () => undefined, {
    actions: [new LinkedAction(systemClock)],
  });
  const { id } = openWallet(global);
  return { ...running, once: () => running.executor.execute(principal, LinkedAction, { id }, key) };
}

describe('a repeat whose effect is on a shard that its params do not name', () => {
  test.each<[string, () => unknown]>([
    [
      'refused by the rules',
      () => {
        throw new InvariantViolation('insufficient funds');
      },
    ],
    ['with nothing left to do', () => 'nothing to do'],
  ])(
    'gets the first result, %s, although the first search passed that shard over',
    async (_what, repeated) => {
      const { once, manager, driver } = linked(repeated);
      expect(await once()).toBe('paid');
      manager(mexico).keys.findFailures.push(unavailable);
      expect(await once()).toBe('paid');
      expect(await once()).toBe('paid');
      expect(driver.committed).toHaveLength(1);
      manager(mexico).keys.findFailures.push(unavailable, unavailable);
      await expect(once()).rejects.toBe(unavailable);
    },
  );

  test('is recorded where it reads when there was nothing to do the first time either', async () => {
    const running: TestExecutor = executorOf(async () => {
      running.databases.transactionManager(mexico);
      return undefined;
    });
    const { driver, execute, manager } = running;
    await execute({ id: openWallet(global).id }, key);
    expect(driver.committed).toMatchObject([{ shard: mexico }]);
    expect(manager(mexico).keys.waits).toEqual([100]);
  });
});
