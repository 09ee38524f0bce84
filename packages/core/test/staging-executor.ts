import type { ExecutionConfiguration } from '../src/index.js';
import { holdCommits } from './hold-commits.js';
import { ManualClock } from './manual-clock.js';
import { type TestExecutor, executorOf, global, mexico } from './test-executor.js';
import { Wallet } from './wallet.js';

export const once: ExecutionConfiguration = { retry: { attemptsMax: 1 } };

/** What the action of these tests does: reads wallets, and adds to some of them. */
interface Params {
  readonly reads: readonly Wallet[];
  readonly updates: readonly Wallet[];
}

/** An executor with stored wallets, whose commits wait until they are released. */
export function stagingExecutor(): TestExecutor & {
  readonly release: () => void;
  readonly manual: ManualClock;
  readonly deposit: (
    reads: readonly Wallet[],
    updates?: readonly Wallet[],
    configuration?: ExecutionConfiguration,
  ) => Promise<unknown>;
  readonly seen: bigint[];
} {
  const manual = new ManualClock();
  const seen: bigint[] = [];
  const running = executorOf(
    async (plan, params) => {
      const { reads, updates } = params as Params;
      const read: Wallet[] = [];
      for (const { id } of reads) read.push(await running.wallets.getById(id));
      seen.push(...read.map(({ balance }) => balance));
      if (updates.length === 0) throw new Error('refused');
      const wanted = new Set(updates.map(({ id }) => id.value));
      return plan().updateAll(
        read.filter(({ id }) => wanted.has(id.value)).map((wallet) => wallet.deposit(1n)),
      );
    },
    // No lock passes to another execution after a timeout.
    { groupCommit: true, clock: manual },
  );
  const releases = [global, mexico].map((shard) => {
    const manager = running.manager(shard);
    const persist = manager.persist.bind(manager);
    manager.persist = async (changes) => {
      const outcome = await persist(changes);
      // From then on, reads return what is committed.
      for (const { model } of changes.changes) if (model instanceof Wallet) running.wallets.store(model);
      return outcome;
    };
    return holdCommits(manager);
  });
  const release = (): void => {
    for (const each of releases) each();
  };
  function deposit(
    reads: readonly Wallet[],
    updates: readonly Wallet[] = reads,
    configuration: ExecutionConfiguration = once,
  ): Promise<unknown> {
    const execution = running.execute({ reads, updates } satisfies Params, configuration);
    execution.catch(() => undefined);
    return execution;
  }
  return { ...running, manual, release, deposit, seen };
}
