import { expect, test, vi } from 'vitest';

import { CommitListeners } from '../src/action/commit.js';
import { KeyedMutex } from '../src/reads/keyed-mutex.js';
import { StaleRecordError, TransientStorageError } from '../src/storage/storage-errors.js';
import { leftBehind } from './left-behind.js';
import { ManualClock } from './manual-clock.js';
import { executorOf, global, mexico, openWallet, storedWallet } from './test-executor.js';
import { Wallet } from './wallet.js';

/** What was left behind by the package, and not by the databases in memory of its tests. */
async function leftBySources(round: (number: number) => unknown): Promise<readonly string[]> {
  return (await leftBehind(round)).filter((line) => line.includes('/core/src/'));
}

type Way = 'open' | 'read' | 'refuse' | 'several shards';

test.each([false, true])(
  'executions leave nothing behind, however they end; with group commit: %s',
  async (groupCommit) => {
    const running = executorOf(
      async (plan, params) => {
        const { way, wallet } = params as { readonly way: Way; readonly wallet: Wallet };
        if (way === 'open') return plan().add(openWallet()) && undefined;
        if (way === 'several shards')
          return plan().addAll([openWallet(global), openWallet(mexico)]) && undefined;
        const read = await running.wallets.getById(wallet.id);
        if (way === 'refuse') throw new Error('The rules refuse it');
        return plan().update(read.deposit(1n)) && undefined;
      },
      { groupCommit },
    );
    const left = await leftBySources(async (number) => {
      const wallet = storedWallet(running);
      const execute = (way: Way, idempotencyKey?: string): Promise<unknown> =>
        running.execute({ way, wallet }, idempotencyKey === undefined ? {} : { idempotencyKey });
      const manager = running.manager(global);
      await execute('open');
      await execute('open', `key-${number}`);
      await execute('open', `key-${number}`);
      await execute('read');
      await Promise.all([execute('read'), execute('read'), execute('open')]);
      manager.persistFailures.push(new TransientStorageError(global, 'a deadlock'));
      await execute('read');
      manager.persistFailures.push(
        ...Array.from({ length: 5 }, () => new StaleRecordError('Wallet', 'w', 1)),
      );
      await Promise.allSettled([execute('read')]);
      manager.answersToLose = 1;
      await execute('open');
      await Promise.allSettled([execute('refuse'), execute('refuse', `refused-${number}`)]);
      await Promise.allSettled([execute('several shards')]);
      await running.execute({ way: 'several shards' }, { allowCrossShard: true });
    });
    expect(left).toEqual([]);
  },
);

test('lone plans that commit in a group leave no timer behind, and wait for locks as long as the first', async () => {
  const clock = new ManualClock();
  const running = executorOf(async (plan) => void plan().add(openWallet()), { groupCommit: true, clock });
  const manager = running.manager(global);
  const persist = vi.spyOn(manager, 'persist');
  for (let round = 0; round < 12; round++) await running.execute();
  const waits = persist.mock.calls.map(([, options]) => options?.shortLockWait);
  expect(waits).toEqual(Array.from({ length: 12 }, () => false));
  expect(clock.timerCount).toBe(0);
});

test('locks on models leave nothing behind, whether they are released, passed on, held up or taken away', async () => {
  const clock = new ManualClock();
  const locks = new KeyedMutex({ waitMs: 100 }, clock);
  const left = await leftBySources(async (number) => {
    const first = locks.tryAcquire(Wallet, `passed on ${number}`)!;
    const second = locks.acquire(Wallet, first.id);
    const brief = locks.acquire(Wallet, first.id, true);
    locks.holdUp(first);
    expect(await brief).toBeUndefined();
    locks.release(first);
    locks.release((await second)!);
    const lost = locks.tryAcquire(Wallet, `taken away ${number}`)!;
    const [next, late] = [locks.acquire(Wallet, lost.id), locks.acquire(Wallet, lost.id)];
    for (let tick = 0; tick < 4; tick++) await clock.wake();
    locks.release((await next)!);
    expect(await late).toBeUndefined();
    locks.release(lost);
  });
  expect(left).toEqual([]);
});

test('listeners of commits that are removed leave nothing behind', async () => {
  const listeners = new CommitListeners();
  const left = await leftBySources(() => {
    const remove = listeners.add(() => undefined);
    listeners.tell(global);
    remove();
    remove();
  });
  expect(left).toEqual([]);
});
