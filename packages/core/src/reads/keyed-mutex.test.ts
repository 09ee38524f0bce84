import { describe, expect, test } from 'vitest';

import { holdCommits } from '../../test/hold-commits.js';
import { ManualClock, settled } from '../../test/manual-clock.js';
import { executorOf, global, storedWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import type { Clock } from '../clock.js';
import { StaleRecordError } from '../storage/storage-errors.js';
import { KeyedMutex, type ModelLock } from './keyed-mutex.js';

function mutexOf(clock: Clock = new ManualClock()): KeyedMutex {
  return new KeyedMutex({ waitMs: 100 }, clock);
}

function taken(locks: KeyedMutex, id: string): ModelLock {
  const lock = locks.tryAcquire(Wallet, id);
  if (lock === undefined) throw new Error(`The lock of ${id} is not free`);
  return lock;
}

function depositing(options: Parameters<typeof executorOf>[1] = {}) {
  const clock = new ManualClock();
  let inside = 0;
  let most = 0;
  const running = executorOf(
    async (plan, params) => {
      const wallets: Wallet[] = [];
      for (const wallet of params as readonly Wallet[])
        wallets.push(await running.wallets.getById(wallet.id));
      most = Math.max(most, ++inside);
      await settled();
      inside--;
      return plan().updateAll(wallets.map((wallet) => wallet.deposit(1n)));
    },
    { clock, ...options },
  );
  const manager = running.manager(global);
  const persist = manager.persist.bind(manager);
  manager.persist = async (changes) => {
    const outcome = await persist(changes);
    for (const { model, expectedVersion } of changes.changes) {
      if (!(model instanceof Wallet)) continue;
      const before = await running.wallets.getById(model.id);
      if (before.version !== expectedVersion)
        throw new StaleRecordError('Wallet', model.id.value, expectedVersion);
      running.wallets.store(model);
    }
    return outcome;
  };
  return { ...running, manual: clock, most: () => most };
}

describe('locks', () => {
  test('are held by one at a time, in the order in which they were requested', async () => {
    const locks = mutexOf();
    const first = taken(locks, 'a');
    expect(locks.tryAcquire(Wallet, 'a')).toBeUndefined();
    const order: number[] = [];
    const waits = [1, 2, 3].map(async (number) => {
      const lock = await locks.acquire(Wallet, 'a');
      order.push(number);
      if (lock !== undefined) locks.release(lock);
    });
    await settled();
    expect(order).toEqual([]);
    locks.release(first);
    await Promise.all(waits);
    expect(order).toEqual([1, 2, 3]);
    expect(locks.tryAcquire(Wallet, 'a')).toBeDefined();
  });

  test('of one model do not affect another one', () => {
    const locks = mutexOf();
    taken(locks, 'a');
    expect(locks.tryAcquire(Wallet, 'b')).toBeDefined();
  });

  test('are waited for no longer than the limit, with one timer for all', async () => {
    const clock = new ManualClock();
    const locks = mutexOf(clock);
    const held = taken(locks, 'a');
    const waits = [locks.acquire(Wallet, 'a'), locks.acquire(Wallet, 'a')];
    let ended = 0;
    for (const wait of waits) void wait.then(() => ended++);
    await clock.wake();
    await clock.wake();
    expect(ended).toBe(0);
    await clock.wake();
    const [next, other] = await Promise.all(waits);
    expect(other).toBeUndefined();
    expect(clock.sleeps).toBe(3);
    locks.release(held);
    expect(locks.tryAcquire(Wallet, 'a')).toBeUndefined();
    locks.release(next!);
    expect(locks.tryAcquire(Wallet, 'a')).toBeDefined();
  });

  test('pass at once to a waiter when nobody holds them', async () => {
    expect(await mutexOf().acquire(Wallet, 'a')).toEqual({ model: Wallet, id: 'a' });
  });

  test('that a former waiter never releases pass to the next one, too', async () => {
    const clock = new ManualClock();
    const locks = mutexOf(clock);
    const held = taken(locks, 'a');
    const first = locks.acquire(Wallet, 'a');
    const second = locks.acquire(Wallet, 'a');
    locks.release(held);
    expect(await first).toBeDefined();
    for (let tick = 0; tick < 3; tick++) await clock.wake();
    expect(await Promise.race([second, settled()])).toBeDefined();
  });

  test('that are never released hold up only the first waiter, not each of them', async () => {
    const clock = new ManualClock();
    const locks = mutexOf(clock);
    taken(locks, 'a');
    const first = locks.acquire(Wallet, 'a');
    for (let tick = 0; tick < 3; tick++) await clock.wake();
    const second = locks.acquire(Wallet, 'a');
    locks.release((await first)!);
    expect(await second).toBeDefined();
  });

  test('end brief waits while their holder is held up, until they pass to the next one', async () => {
    const locks = mutexOf();
    const held = taken(locks, 'a');
    const [brief, patient] = [locks.acquire(Wallet, 'a', true), locks.acquire(Wallet, 'a')];
    locks.holdUp(held);
    expect(await brief).toBeUndefined();
    expect(await locks.acquire(Wallet, 'a', true)).toBeUndefined();
    locks.release(held);
    const next = await patient;
    locks.holdUp(held);
    const later = locks.acquire(Wallet, 'a', true);
    locks.release(next!);
    expect(await later).toBeDefined();
  });

  test('are obtained even by a brief wait while their holder is not held up', async () => {
    const locks = mutexOf();
    const held = taken(locks, 'a');
    const brief = locks.acquire(Wallet, 'a', true);
    locks.release(held);
    expect(await brief).toBeDefined();
  });

  test('whose holder is held up pass to a patient waiter in time', async () => {
    const clock = new ManualClock();
    const locks = mutexOf(clock);
    const held = taken(locks, 'a');
    const patient = locks.acquire(Wallet, 'a');
    locks.holdUp(held);
    for (let tick = 0; tick < 3; tick++) await clock.wake();
    expect(await Promise.race([patient, settled()])).toBeDefined();
  });

  test('that were already released are not held up', async () => {
    const locks = mutexOf();
    const old = taken(locks, 'a');
    locks.release(old);
    locks.holdUp(old);
    const held = taken(locks, 'a');
    const brief = locks.acquire(Wallet, 'a', true);
    locks.release(held);
    expect(await brief).toBeDefined();
  });

  test('that were already released are not released twice', () => {
    const locks = mutexOf();
    const old = taken(locks, 'a');
    locks.release(old);
    locks.release(old);
    taken(locks, 'a');
    locks.release(old);
    expect(locks.tryAcquire(Wallet, 'a')).toBeUndefined();
  });
});

describe('executions that take locks', () => {
  const once = { retry: { attemptsMax: 1 } };

  test.each([false, true])('are not stale because of each other (grouped: %s)', async (groupCommit) => {
    const running = depositing({ groupCommit });
    const wallet = storedWallet(running);
    await Promise.all(Array.from({ length: 10 }, () => running.execute([wallet], once)));
    expect(await running.wallets.getById(wallet.id)).toMatchObject({ version: 11, balance: 110n });
  });

  test('hold the lock until the commit has ended, one at a time', async () => {
    const running = depositing();
    const wallet = storedWallet(running);
    await Promise.all(Array.from({ length: 3 }, () => running.execute([wallet], once)));
    expect(running.most()).toBe(1);
  });

  test('run side by side and become stale when locks are switched off', async () => {
    const running = depositing({ modelLocks: false });
    const wallet = storedWallet(running);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 3 }, () => running.execute([wallet], once)),
    );
    expect(running.most()).toBe(3);
    expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(2);
  });

  test('never wait for a second model, and so never for each other', async () => {
    const running = depositing();
    const [one, other] = [storedWallet(running), storedWallet(running)];
    const outcomes = await Promise.allSettled([
      running.execute([one, other], once),
      running.execute([other, one], once),
    ]);
    expect(outcomes.map(({ status }) => status)).toContain('fulfilled');
    expect(running.manual.sleeps).toBe(0);
  });

  test('release the lock before they wait to run again', async () => {
    const running = depositing();
    const wallet = storedWallet(running);
    running.manager(global).persistFailures.push(new StaleRecordError('Wallet', wallet.id.value, 1));
    const first = running.execute([wallet]);
    await settled();
    await settled();
    expect(running.manual.sleeps).toBe(1);
    await running.execute([wallet], once);
    await running.manual.wake();
    await first;
    expect(await running.wallets.getById(wallet.id)).toMatchObject({ version: 3 });
  });

  const handledEvent = { handler: 'notify', eventId: 'event', shard: global };
  const [ofClient, ofHandler] = [{}, { handledEvent }];
  test.each([
    ['an action of a handler gives the lock back', ofHandler, ofClient, true],
    ['an action of a client keeps the lock', ofClient, ofClient, false],
    ["a handler's action that comes next does not wait for the lock of a client", ofClient, ofHandler, true],
  ])("%s while its commit waits for somebody else's lock", async (_what, first, next, goesOn) => {
    const running = executorOf(
      async (plan, params) => {
        plan().update((await running.wallets.getById((params as Wallet).id)).deposit(1n));
      },
      { clock: new ManualClock() },
    );
    const wallet = storedWallet(running);
    const manager = running.manager(global);
    const persist = manager.persist.bind(manager);
    const lock = Promise.withResolvers<void>();
    manager.persist = async (changes, options) => {
      manager.persist = persist;
      options?.onLockedOut?.();
      await lock.promise;
      return persist(changes);
    };
    const lockedOut = running
      .execute(wallet, { ...once, ...first, idempotencyKey: 'one' })
      .catch(() => undefined);
    await settled();
    let isOver = false;
    // The clock does not advance, so no wait for a lock ends before the lock is released.
    const other = running
      .execute(wallet, { ...once, ...next, idempotencyKey: 'other' })
      .then(() => (isOver = true));
    for (let round = 0; round < 3; round++) await settled();
    expect(isOver).toBe(goesOn);
    lock.resolve();
    await Promise.all([lockedOut, other]);
  });

  test('release the lock when perform fails', async () => {
    const running = executorOf(async (_plan, params) => {
      await running.wallets.getById((params as Wallet).id);
      throw new Error('refused');
    });
    const wallet = storedWallet(running);
    for (let count = 0; count < 3; count++) await expect(running.execute(wallet)).rejects.toThrow('refused');
  });

  test('do not hold up executions that want a model which they only read', async () => {
    const running = executorOf(async (_plan, params) => running.wallets.getById((params as Wallet).id), {
      clock: new ManualClock(),
    });
    const wallet = storedWallet(running);
    const release = holdCommits(running.manager(global));
    const executions = [running.execute(wallet), running.execute(wallet)];
    await settled();
    expect(running.wallets.reads).toBe(2);
    release();
    await Promise.all(executions);
  });

  test('keep the locks on models that they change until the commit, and release the others earlier', async () => {
    const running = executorOf(
      async (plan, params) => {
        const { reads, updates } = params as Record<'reads' | 'updates', readonly Wallet[]>;
        for (const { id } of reads) await running.wallets.getById(id);
        return plan().updateAll(updates.map((wallet) => wallet.deposit(1n)));
      },
      { clock: new ManualClock() },
    );
    const [one, other, third] = [storedWallet(running), storedWallet(running), storedWallet(running)];
    const release = holdCommits(running.manager(global));
    const executions = [running.execute({ reads: [one, other, third], updates: [one, other] }, once)];
    await settled();
    // The clock does not advance, so an execution that has to wait for a lock keeps waiting and does not read.
    for (const [wallet, reads] of [
      [one, 3],
      [other, 3],
      [third, 4],
    ] as const) {
      executions.push(running.execute({ reads: [wallet], updates: [] }, once));
      await settled();
      expect(running.wallets.reads).toBe(reads);
    }
    release();
    await Promise.all(executions);
  });

  test('never wait for two models at the same time', async () => {
    const running = executorOf(
      async (plan, params) => {
        const wallets = await Promise.all(
          (params as readonly Wallet[]).map(({ id }) => running.wallets.getById(id)),
        );
        return plan().updateAll(wallets.map((wallet) => wallet.deposit(1n)));
      },
      { clock: new ManualClock() },
    );
    const wallets = [storedWallet(running), storedWallet(running)];
    const release = holdCommits(running.manager(global));
    const holder = running.execute(wallets, once);
    await settled();
    const before = running.wallets.reads;
    const next = running.execute(wallets, once);
    await settled();
    expect(running.wallets.reads).toBe(before);
    release();
    await Promise.all([holder, next]);
  });

  test('take no lock while they wait for another one, and take it afterwards', async () => {
    const running = executorOf(
      async (plan, params) => {
        const wallets = (params as readonly Wallet[]).map(({ id }) => running.wallets.getById(id));
        return plan().updateAll((await Promise.all(wallets)).map((wallet) => wallet.deposit(1n)));
      },
      { clock: new ManualClock() },
    );
    const [held, free] = [storedWallet(running), storedWallet(running)];
    const release = holdCommits(running.manager(global));
    const holder = running.execute([held], once);
    await settled();
    const waiting = running.execute([held, free], once);
    await settled();
    // The clock does not advance, so an execution that has to wait for a lock keeps waiting and does not read.
    const reads = running.wallets.reads;
    const beside = running.execute([free], once);
    await settled();
    expect(running.wallets.reads).toBe(reads + 1);
    release();
    await Promise.allSettled([holder, waiting, beside]);
    const releaseAgain = holdCommits(running.manager(global));
    const both = running.execute([held, free], once);
    await settled();
    const readsOfBoth = running.wallets.reads;
    const late = running.execute([free], once);
    await settled();
    expect(running.wallets.reads).toBe(readsOfBoth);
    releaseAgain();
    await Promise.allSettled([both, late]);
  });

  test('hold at most 64, and continue without those of further models', async () => {
    const running = executorOf(
      async (plan, params) => {
        const wallets: Wallet[] = [];
        for (const { id } of params as readonly Wallet[]) wallets.push(await running.wallets.getById(id));
        return plan().updateAll(wallets.map((wallet) => wallet.deposit(1n)));
      },
      { clock: new ManualClock() },
    );
    const wallets = Array.from({ length: 65 }, () => storedWallet(running));
    const release = holdCommits(running.manager(global));
    const holder = running.execute(wallets, once);
    await settled();
    expect(running.wallets.reads).toBe(65);
    // The clock does not advance, so an execution that has to wait for a lock keeps waiting and does not read.
    const next = running.execute([wallets[64]], once);
    await settled();
    expect(running.wallets.reads).toBe(66);
    const last = running.execute([wallets[63]], once);
    await settled();
    expect(running.wallets.reads).toBe(66);
    release();
    await Promise.all([holder, next, last]);
  });

  test('release a lock that is obtained after perform has ended, because nobody awaited the read', async () => {
    const running = executorOf(
      async (plan, params) => {
        const { wallet, isRefused } = params as { readonly wallet: Wallet; readonly isRefused?: boolean };
        const read = running.wallets.getById(wallet.id);
        if (isRefused === true) throw new Error('refused');
        return plan().update((await read).deposit(1n));
      },
      { clock: new ManualClock() },
    );
    const release = holdCommits(running.manager(global));
    const wallet = storedWallet(running);
    const holder = running.execute({ wallet }, once);
    await settled();
    await expect(running.execute({ wallet, isRefused: true }, once)).rejects.toThrow('refused');
    release();
    await holder;
    await settled();
    // The clock does not advance, so this would wait for ever if a lock were still held.
    await running.execute({ wallet }, once);
    expect(running.driver.committed).toHaveLength(2);
  });
});
