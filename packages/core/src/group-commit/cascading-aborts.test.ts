import { describe, expect, test } from 'vitest';

import { holdCommits } from '../../test/hold-commits.js';
import { settled } from '../../test/manual-clock.js';
import { once, stagingExecutor } from '../../test/staging-executor.js';
import { executorOf, global, mexico, storedWallet } from '../../test/test-executor.js';
import { PatientClock } from '../../test/virtual-clock.js';
import type { Wallet } from '../../test/wallet.js';
import {
  CommitOutcomeUnknownError,
  ConstraintViolationError,
  StaleRecordError,
} from '../storage/storage-errors.js';

describe('a model whose write is pending', () => {
  test('makes dependent executions run again at once, with fresh reads, if it is not written', async () => {
    const running = stagingExecutor();
    const wallet = storedWallet(running);
    const first = running.deposit([wallet]);
    await settled();
    const built = [running.deposit([wallet]), running.deposit([wallet])];
    await settled();
    expect(running.seen).toEqual([100n, 101n, 102n]);
    const refusal = new ConstraintViolationError(global, { constraint: 'a', table: 'b' });
    running.manager(global).persistFailures.push(refusal);
    running.release();
    await expect(first).rejects.toBe(refusal);
    // The dependent executions run again although the clock does not advance.
    await Promise.all(built);
    expect(running.seen).toEqual([100n, 101n, 102n, 100n, 101n]);
    expect(running.driver.committed.map(({ changes }) => changes[0]?.expectedVersion)).toEqual([1, 2]);
  });

  test('also aborts dependent executions that are queued after it was aborted', async () => {
    const gate = Promise.withResolvers<void>();
    const seen: number[] = [];
    const running = executorOf(
      async (plan, params) => {
        const wallet = await running.wallets.getById((params as Wallet).id);
        seen.push(wallet.version);
        if (seen.length === 2) await gate.promise;
        return plan().update(wallet.deposit(1n));
      },
      { groupCommit: true, modelLocks: false, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const wallet = storedWallet(running);
    const manager = running.manager(global);
    const release = holdCommits(manager);
    manager.persistFailures.push(new Error('refused'));
    const refused = running.execute(wallet, once);
    await settled();
    const built = running.execute(wallet, once);
    await settled();
    release();
    await expect(refused).rejects.toThrow('refused');
    gate.resolve();
    await built;
    expect(seen).toEqual([1, 2, 1]);
    expect(running.driver.committed.map(({ changes }) => changes[0]?.expectedVersion)).toEqual([1]);
  });

  test('aborts what depends on it within a group', async () => {
    const running = stagingExecutor();
    const [wallet, other] = [storedWallet(running), storedWallet(running)];
    const first = running.deposit([other]);
    await settled();
    const chain = [running.deposit([wallet]), running.deposit([wallet]), running.deposit([wallet])];
    await settled();
    const stale = new StaleRecordError('Wallet', wallet.id.value, 1);
    const persistAll = running.manager(global).persistAll.bind(running.manager(global));
    running.manager(global).persistAll = async (group) => {
      running.manager(global).persistAll = persistAll;
      return group.map((_each, index) => (index === 0 ? stale : 'single'));
    };
    running.release();
    await first;
    await expect(chain[0]).rejects.toBe(stale);
    await Promise.all(chain.slice(1));
    expect(running.driver.committed.map(({ changes }) => changes[0]?.expectedVersion)).toEqual([1, 1, 2]);
  });

  test.each(['one', 'several'])('is awaited by an attempt after an aborted one (reads %s)', async (how) => {
    const gate = Promise.withResolvers<void>();
    let runs = 0;
    const running = executorOf(
      async (plan, params) => {
        const { id } = params as Wallet;
        if (++runs === 3) await gate.promise;
        const wallet =
          how === 'one' ? await running.wallets.getById(id) : (await running.wallets.findAllByIds([id]))[0]!;
        seen.push(wallet.version);
        return plan().update(wallet.deposit(1n));
      },
      { groupCommit: true, modelLocks: false, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const seen: number[] = [];
    const wallet = storedWallet(running);
    const manager = running.manager(global);
    const persist = manager.persist.bind(manager);
    const writes: (() => void)[] = [];
    manager.persist = async (changes) => {
      await new Promise<void>((end) => writes.push(end));
      const outcome = await persist(changes);
      for (const { model } of changes.changes) running.wallets.store(model as Wallet);
      return outcome;
    };
    const refused = running.execute(wallet, once);
    await settled();
    const aborted = running.execute(wallet, once);
    await settled();
    manager.persistFailures.push(new Error('refused'));
    writes[0]!();
    await expect(refused).rejects.toThrow('refused');
    await settled();
    const other = running.execute(wallet, once);
    await settled();
    gate.resolve();
    await settled();
    expect(seen).toEqual([1, 2, 1]);
    writes[1]!();
    await settled();
    expect(seen).toEqual([1, 2, 1, 2]);
    writes[2]!();
    expect(await Promise.all([aborted, other])).toMatchObject([{ version: 3 }, { version: 2 }]);
  });

  test('aborts an execution that only read it, even on another shard', async () => {
    const running = stagingExecutor();
    const [wallet, other] = [storedWallet(running), storedWallet(running, mexico)];
    const first = running.deposit([wallet]);
    await settled();
    const reading = running.deposit([wallet, other], [other]);
    await settled();
    running.manager(global).persistFailures.push(new Error('refused'));
    running.release();
    await expect(first).rejects.toThrow('refused');
    await reading;
    expect(running.seen).toEqual([100n, 101n, 100n, 100n, 100n]);
    expect(running.driver.committed.map(({ changes }) => changes[0]?.model.id)).toEqual([other.id]);
  });

  test.each([
    ['fail once the model is written', undefined, [100n, 101n]],
    ['run again if the model is not written', new Error('aborted'), [100n, 101n, 100n]],
  ])('makes an execution that throws because of it %s', async (_what, failure, seen) => {
    const running = stagingExecutor();
    const wallet = storedWallet(running);
    const first = running.deposit([wallet]);
    await settled();
    let isRefused = false;
    const refused = running.deposit([wallet], []);
    refused.catch(() => (isRefused = true));
    await settled();
    expect(running.seen).toEqual([100n, 101n]);
    expect(isRefused).toBe(false);
    running.manager(global).persistFailures.push(failure);
    running.release();
    await expect(refused).rejects.toThrow('refused');
    expect(running.seen).toEqual(seen);
    await Promise.allSettled([first]);
  });

  test('makes an execution that throws because of it run again after an unknown outcome', async () => {
    const running = stagingExecutor();
    const wallet = storedWallet(running);
    const first = running.deposit([wallet]);
    await settled();
    const refused = running.deposit([wallet], []);
    await settled();
    const unknown = new CommitOutcomeUnknownError(global, 'action-1');
    const manager = running.manager(global);
    manager.persistFailures.push(unknown);
    manager.outcomes.push(unknown);
    running.release();
    await expect(first).rejects.toBe(unknown);
    await expect(refused).rejects.toThrow('refused');
    expect(running.seen).toEqual([100n, 101n, 100n]);
  });

  test('does not turn the unknown outcome of a dependent plan into a stale one', async () => {
    const running = stagingExecutor();
    const [wallet, other] = [storedWallet(running), storedWallet(running)];
    const first = running.deposit([other]);
    await settled();
    const chain = [running.deposit([wallet]), running.deposit([wallet])];
    await settled();
    const manager = running.manager(global);
    const unknown = ['one', 'two'].map((action) => new CommitOutcomeUnknownError(global, action));
    manager.persistAll = async () => unknown;
    manager.outcomes.push(...unknown);
    running.release();
    await first;
    for (const execution of chain)
      await expect(execution).rejects.toMatchObject({ code: 'commit-outcome-unknown' });
    expect(running.seen).toEqual([100n, 100n, 101n]);
  });
});
