import { describe, expect, test } from 'vitest';

import { key, unavailable, unsearched } from '../../test/counting-executor.js';
import {
  ResultAction,
  type TestExecutor,
  executorOf,
  global,
  mexico,
  openWallet,
  writtenWallet,
} from '../../test/test-executor.js';
import type { Wallet } from '../../test/wallet.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import type { Id } from '../id/id.js';
import { TransientStorageError } from '../storage/storage-errors.js';

/** Executes an action that changes a wallet in Mexico once, and refuses a repeat. */
function onceOnly(): TestExecutor & { readonly id: Id<Wallet>; readonly refusal: Error } {
  const wallet = writtenWallet(mexico);
  const refusal = new Error('refused by the rules');
  let performed = 0;
  const running = executorOf(async (plan) => {
    if (++performed > 1) throw refusal;
    plan().update(wallet);
  });
  return { ...running, id: wallet.id, refusal };
}

test('a repeat gets its own result if two requests have used its key at the same time, on two shards', async () => {
  const gate = Promise.withResolvers<void>();
  let waiting = 0;
  const running = executorOf(async (plan, params) => {
    plan().update(writtenWallet(params === 'mexico' ? mexico : global));
    if (++waiting === 2) gate.resolve();
    await gate.promise;
  });
  await Promise.all([running.execute('global', key), running.execute('mexico', key)]);
  expect(running.driver.committed).toHaveLength(2);
  for (const request of ['global', 'mexico']) expect(await running.execute(request, key)).toBeUndefined();
  await expect(running.execute('another', key)).rejects.toMatchObject({ code: 'idempotency-key-reused' });
  expect(running.driver.committed).toHaveLength(2);
});

describe('a repeat that the rules refuse', () => {
  test.each([key, unsearched])('gets the first result', async (configuration) => {
    const { execute, id } = onceOnly();
    await execute({ id }, configuration);
    expect(await execute({ id }, configuration)).toBeUndefined();
  });

  test('has its key searched for only on the shards that its params name', async () => {
    const { execute, manager, id } = onceOnly();
    await execute({ id }, unsearched);
    await execute({ id }, unsearched);
    expect([manager(global).keys.waits, manager(mexico).keys.waits]).toEqual([[], [undefined]]);
  });

  test('has its key searched for nowhere else once it is found where the action read', async () => {
    const running: TestExecutor = executorOf(async (plan) => {
      running.databases.transactionManager(mexico);
      if (running.driver.committed.length > 0) throw new Error('refused by the rules');
      plan().update(writtenWallet(mexico));
    });
    const { execute, manager } = running;
    await execute({}, unsearched);
    manager(global).keys.waits.length = 0;
    expect(await execute({}, unsearched)).toBeUndefined();
    expect(manager(global).keys.waits).toEqual([]);
  });

  test('has its key searched for on no other shard even if it is not found', async () => {
    const { execute, manager, refusal, id } = onceOnly();
    await execute({}, { idempotencyKey: 'key-2' });
    manager(global).keys.waits.length = 0;
    await expect(execute({ id }, unsearched)).rejects.toBe(refusal);
    expect(manager(global).keys.waits).toEqual([]);
  });

  test('has its key searched for in every database when its params name no shard', async () => {
    const { execute, manager } = onceOnly();
    await execute({}, unsearched);
    manager(global).keys.waits.length = 0;
    await execute({}, unsearched);
    expect([manager(global).keys.waits, manager(mexico).keys.waits]).toEqual([[100], [100]]);
  });

  test('is not reported as refused when the search fails because of a bug', async () => {
    const { execute, manager, id } = onceOnly();
    await execute({ id }, unsearched);
    for (const bug of [new InvariantViolationError('a bug'), new TypeError('a bug')]) {
      manager(mexico).keys.findFailures.push(bug);
      await expect(execute({ id }, unsearched)).rejects.toBe(bug);
      manager(mexico).keys.findFailures.push(bug);
      await expect(execute({ id }, key)).rejects.toBe(bug);
    }
  });

  test('is not reported as refused when its shard does not answer', async () => {
    const { execute, manager, id } = onceOnly();
    await execute({ id }, unsearched);
    manager(mexico).keys.findFailures.push(unavailable);
    await expect(execute({ id }, unsearched)).rejects.toBe(unavailable);
  });

  test('is answered by the shard of its effect, however long that takes, whatever the others do', async () => {
    const { execute, manager, id } = onceOnly();
    const params = { id, other: openWallet(global).id };
    await execute(params, unsearched);
    manager(global).keys.findFailures.push(unavailable);
    expect(await execute(params, unsearched)).toBeUndefined();
    // The search does not wait for the others when the key is found.
    manager(global).keys.find = () => new Promise(() => undefined);
    expect(await execute(params, unsearched)).toBeUndefined();
    expect(manager(mexico).keys.waits).toEqual([undefined, undefined]);
  });

  test.each([unavailable, new TransientStorageError(mexico, 'the connection was lost')])(
    'is not reported as refused when a shard that it names does not answer (%s)',
    async (failure) => {
      const { execute, manager, id } = onceOnly();
      const params = { id, other: openWallet(global).id };
      await execute(params, unsearched);
      manager(mexico).keys.findFailures.push(failure);
      const rejected = await execute(params, unsearched).catch((error: unknown) => error);
      expect(rejected).toMatchObject({ code: 'shard-unavailable', shard: mexico });
      expect([rejected, (rejected as Error).cause]).toContain(failure);
    },
  );

  test('is refused as before when there was no first request', async () => {
    const { execute, refusal, id } = onceOnly();
    await execute({ id }, unsearched);
    await expect(execute({ id }, { idempotencyKey: 'key-2' })).rejects.toBe(refusal);
  });
});

/** Reads a wallet in Mexico, and changes it the first time. */
function linked(repeated: () => unknown): TestExecutor & { readonly once: () => Promise<unknown> } {
  const wallet = writtenWallet(mexico);
  let performed = 0;
  const running = executorOf(
    async (plan) => {
      // Every repository that reads asks for the transaction manager in this way.
      running.databases.transactionManager(mexico);
      if (++performed > 1) return repeated();
      plan().update(wallet);
      return 'paid';
    },
    {},
    ResultAction,
  );
  const { id } = openWallet(global);
  return { ...running, once: () => running.execute({ id }, key) };
}

describe('a repeat whose effect is on an unnamed shard', () => {
  test.each<[string, () => unknown]>([
    [
      'refused by the rules',
      () => {
        throw new InvariantViolationError('insufficient funds');
      },
    ],
    ['with nothing left to do', () => 'nothing to do'],
  ])('gets the first result although the first search skipped that shard: %s', async (_what, repeated) => {
    const { once, manager, driver } = linked(repeated);
    expect(await once()).toBe('paid');
    manager(mexico).keys.findFailures.push(unavailable);
    expect(await once()).toBe('paid');
    expect(await once()).toBe('paid');
    expect(driver.committed).toHaveLength(1);
    manager(mexico).keys.findFailures.push(unavailable, unavailable);
    await expect(once()).rejects.toBe(unavailable);
  });
});

describe('a request with nothing to do', () => {
  test('is recorded on the shard that it reads, even if its params name another one', async () => {
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
