import { describe, expect, test } from 'vitest';
import { holdCommits } from '../../test/hold-commits.js';
import { ManualClock, settled } from '../../test/manual-clock.js';
import { executorOf, global, storedWallet } from '../../test/test-executor.js';
import type { Wallet } from '../../test/wallet.js';

const once = { retry: { attemptsMax: 1 } };

describe('reads by id', () => {
  test('of executions that run at the same time are one statement', async () => {
    const running = executorOf(async (_plan, params) => running.wallets.getById((params as Wallet).id));
    const wallets = Array.from({ length: 3 }, () => storedWallet(running));
    const read = await Promise.all(wallets.map((wallet) => running.execute(wallet)));
    expect(read).toEqual(wallets);
    expect(running.wallets.reads).toBe(1);
  });

  test.each(['one', 'several'])(
    'that begin when perform has ended see only what is committed (reads %s)',
    async (how) => {
      const gate = Promise.withResolvers<void>();
      const late: Promise<Wallet | undefined>[] = [];
      const running = executorOf(
        async (plan, params) => {
          const { id } = params as Wallet;
          const afterwards = async (): Promise<Wallet | undefined> => {
            await gate.promise;
            return how === 'one'
              ? running.wallets.getById(id)
              : (await running.wallets.findAllByIds([id]))[0];
          };
          late.push(afterwards());
          return plan().update((await running.wallets.getById(id)).deposit(1n));
        },
        { groupCommit: true, clock: new ManualClock() },
      );
      const wallet = storedWallet(running);
      const release = holdCommits(running.manager(global));
      const execution = running.execute(wallet, once);
      await settled();
      gate.resolve();
      expect(await late[0]).toBe(wallet);
      release();
      await execution;
    },
  );
});
