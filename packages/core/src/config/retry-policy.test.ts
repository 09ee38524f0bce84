import { describe, expect, test } from 'vitest';

import { executorOf, global, mexico, openWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import {
  CommitOutcomeUnknownError,
  ConstraintViolationError,
  ShardUnavailableError,
  StaleRecordError,
  TransientStorageError,
} from '../storage/storage-errors.js';
import { CrossShardException, UnknownShardError } from './configuration-errors.js';
import { type RetryPolicy, backoffMs, defaultRetryPolicy } from './settings.js';

const stale = new StaleRecordError('Wallet', 'wallet-1', 3);
const transient = new TransientStorageError(global, 'deadlock');

describe('the default policy', () => {
  test.each([
    [true, stale],
    [true, transient],
    [true, new Error('Failed query', { cause: stale })],
    [true, new Error('outer', { cause: new Error('inner', { cause: transient }) })],
    [false, new ShardUnavailableError(global, 'its queue is full')],
    [false, new CommitOutcomeUnknownError(global, 'action-1', { cause: transient })],
    [false, new ConstraintViolationError(global, { constraint: 'a', table: 'b' }, { cause: transient })],
    [false, new CrossShardException('TestAction', [global, mexico])],
    [false, new UnknownShardError(mexico)],
    [false, new Error('anything else')],
    [false, 'no error at all'],
    [false, undefined],
  ])('says %s for %s', (retries, error) => {
    expect(defaultRetryPolicy.isRetryable(error)).toBe(retries);
  });
});

describe('backoffMs', () => {
  test.each([
    [1, 1, 10],
    [2, 1, 20],
    [3, 1, 40],
    [7, 1, 640],
    [8, 1, 1_000],
    [5_000, 1, 1_000],
    [1, 0.5, 5],
    [4, 0.25, 20],
    [8, 0.5, 500],
    [3, 0, 0],
  ])('waits after attempt %d with random %d for %d ms', (attempt, random, expected) => {
    expect(backoffMs(defaultRetryPolicy, attempt, random)).toBe(expected);
  });
});

test('backoffMs is 0 after any number of attempts when it begins with 0', () => {
  for (const attempt of [1, 32, 1_025, 10_000])
    expect(backoffMs({ ...defaultRetryPolicy, backoffBaseMs: 0 }, attempt, 1)).toBe(0);
});

test('backoffMs reaches the longest wait that a timer can have', () => {
  const policy = { ...defaultRetryPolicy, backoffBaseMs: 1, backoffMaxMs: 2 ** 31 - 1 };
  expect(backoffMs(policy, 10_000, 1)).toBe(2 ** 31 - 1);
});

/** A wallet as a repository reads it. */
function storedWallet(id: Wallet['id'], version: number, balance: bigint): Wallet {
  const createdDate = new Date('2026-01-01T00:00:00Z');
  return new Wallet({ id, state: 'OPENED', createdDate, ownerId: 'owner-1', balance, version });
}

describe('an execution whose rows are stale', () => {
  test('runs again with fresh reads and a fresh plan, under the same action id', async () => {
    const { id } = openWallet();
    const { execute, driver, manager, wallets } = executorOf(async (plan) => {
      const wallet = await wallets.getById(id);
      return plan().update(wallet.deposit(1n));
    });
    wallets.store(storedWallet(id, 1, 100n));
    const { persistFailures } = manager(global);
    persistFailures.push(stale);
    const refreshing = manager(global).persist.bind(manager(global));
    manager(global).persist = async (changes) => {
      wallets.store(storedWallet(id, 2, 500n));
      return refreshing(changes);
    };
    expect(await execute()).toMatchObject({ version: 3, balance: 501n });
    expect(wallets.reads).toBe(2);
    expect(driver.committed).toMatchObject([{ changes: [{ expectedVersion: 2 }], events: [{ ordinal: 0 }] }]);
  });

  test('fails after the fifth attempt, with full jitter between attempts', async () => {
    const randoms = [1, 0.5, 0.25, 0];
    let performed = 0;
    const { execute, manager, clock } = executorOf(async () => ++performed, {
      random: () => randoms.shift() ?? Number.NaN,
    });
    manager(global).persistFailures.push(...Array.from({ length: 6 }, () => stale));
    await expect(execute()).rejects.toBe(stale);
    expect(performed).toBe(5);
    expect(clock.sleeps).toEqual([10, 10, 10, 0]);
  });

  test('keeps its action id and start time in all attempts', async () => {
    const { execute, driver, manager } = executorOf(async () => null);
    const seen: unknown[] = [];
    const persist = manager(global).persist.bind(manager(global));
    manager(global).persist = async (changes) => {
      seen.push(changes.action);
      return persist(changes);
    };
    manager(global).persistFailures.push(stale, transient);
    await execute();
    expect(seen).toHaveLength(3);
    expect(new Set(seen)).toEqual(new Set([driver.committed[0]?.action]));
  });
});

/** How often an action runs if each attempt fails like this, and how long it sleeps in between. */
async function runs(policy: Partial<RetryPolicy>, failure: unknown): Promise<readonly [number, number[]]> {
  let performed = 0;
  const { execute, manager, clock } = executorOf(async () => ++performed, {
    retry: { attemptsMax: 3, backoffBaseMs: 100 },
  });
  manager(global).persistFailures.push(...Array.from({ length: 10 }, () => failure));
  await expect(execute(null, { retry: policy })).rejects.toBe(failure);
  return [performed, clock.sleeps];
}

describe('the policy of one execution', () => {
  test("overrides the executor's policy", async () => {
    expect(await runs({}, stale)).toEqual([3, [100, 200]]);
    expect(await runs({ attemptsMax: 1 }, stale)).toEqual([1, []]);
    expect(await runs({ attemptsMax: 4, backoffMaxMs: 150 }, stale)).toEqual([4, [100, 150, 150]]);
  });

  test('decides after which errors another attempt can succeed', async () => {
    expect(await runs({}, new Error('refused'))).toEqual([1, []]);
    expect(await runs({ isRetryable: () => true }, new Error('refused'))).toEqual([3, [100, 200]]);
    expect(await runs({ isRetryable: () => false }, stale)).toEqual([1, []]);
  });

  test("keeps the executor's value for an undefined one, so no limit is lost", async () => {
    const policy = { attemptsMax: undefined } as unknown as Partial<RetryPolicy>;
    expect(await runs(policy, stale)).toEqual([3, [100, 200]]);
  });

  test('retries an error of perform that wraps a transient one', async () => {
    let performed = 0;
    const { execute, clock } = executorOf(async () => {
      if (++performed < 3) throw new Error('Failed query: select …', { cause: transient });
      return 'read at last';
    });
    expect(await execute()).toBe('read at last');
    expect(clock.sleeps).toEqual([10, 20]);
  });
});
