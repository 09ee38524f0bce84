import { expect, test } from 'vitest';

import { StaleRecordError } from '../src/storage/storage-errors.js';
import { keptInMemory } from './kept-in-memory.js';
import { executorOf, global, storedWallet } from './test-executor.js';
import type { Wallet } from './wallet.js';

const rounds = 200;

test.each([false, true])(
  'executions that have ended keep no params, model or plan in memory; with group commit: %s',
  async (groupCommit) => {
    const used: WeakRef<object>[] = [];
    const running = executorOf(
      async (plan, params) => {
        const { id, fails } = params as { readonly id: Wallet['id']; readonly fails: boolean };
        const wallet = await running.wallets.getById(id);
        used.push(new WeakRef(plan()), new WeakRef(params as object));
        if (fails) throw new Error('The rules refuse it');
        const next = wallet.deposit(1n);
        used.push(new WeakRef(next));
        return plan().update(next) && undefined;
      },
      { groupCommit },
    );
    const { id } = storedWallet(running);
    const round = async (number: number): Promise<void> => {
      if (number % 10 === 0)
        running.manager(global).persistFailures.push(new StaleRecordError('Wallet', id.value, 1));
      await Promise.allSettled([
        running.execute({ id, fails: false }),
        running.execute({ id, fails: number % 3 === 0 }),
      ]);
    };
    for (let number = 0; number < rounds; number++) await round(number);
    expect(used.length).toBeGreaterThan(2 * rounds);
    expect(await keptInMemory(used)).toBe(0);
  },
);
