import { describe, expect, test } from 'vitest';
import { ManualClock, settled } from '../../test/manual-clock.js';
import { type TestExecutor, executorOf, global, mexico, openWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import { ConstraintViolationException, StaleRecordException } from '../errors/storage-exceptions.js';

const once: ExecutionConfiguration = { retry: { attemptsMax: 1 } };

/** What the action of these tests does: reads wallets, and adds to some of them. */
interface Params {
  readonly reads: readonly Wallet[];
  readonly updates: readonly Wallet[];
}

/** An executor with stored wallets, whose first commit waits until it is released. */
function busy(): TestExecutor & {
  readonly release: () => void;
  readonly manual: ManualClock;
  readonly deposit: typeof deposit;
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
    // Nobody loses a turn by waiting.
    { groupCommit: true, clock: manual },
  );
  const gate = Promise.withResolvers<void>();
  for (const shard of [global, mexico]) {
    const manager = running.manager(shard);
    const persist = manager.persist.bind(manager);
    manager.persist = async (changes) => {
      await gate.promise;
      const outcome = await persist(changes);
      // What is committed is read from then on.
      for (const { model } of changes.changes) if (model instanceof Wallet) running.wallets.store(model);
      return outcome;
    };
  }
  function deposit(
    reads: readonly Wallet[],
    updates: readonly Wallet[] = reads,
    configuration: ExecutionConfiguration = once,
  ): Promise<unknown> {
    const execution = running.execute({ reads, updates } satisfies Params, configuration);
    execution.catch(() => undefined);
    return execution;
  }
  return { ...running, manual, release: gate.resolve, deposit, seen };
}

function stored(running: TestExecutor, shard = global): Wallet {
  const { id, createdDate } = openWallet(shard);
  return running.wallets.store(
    new Wallet({ id, createdDate, state: 'OPENED', ownerId: 'owner-1', balance: 100n, version: 1 }),
  );
}

describe('a model that is staged and not committed yet', () => {
  test('is what the next execution reads, whose version follows it in the same group', async () => {
    const running = busy();
    const wallet = stored(running);
    const first = running.deposit([wallet]);
    await settled();
    const executions = Array.from({ length: 5 }, () => running.deposit([wallet]));
    await settled();
    expect(running.wallets.reads).toBe(1);
    running.release();
    const results = await Promise.all([first, ...executions]);
    expect(results.flat()).toMatchObject(
      [2, 3, 4, 5, 6, 7].map((version) => ({ version, balance: BigInt(99 + version) })),
    );
    const { groups } = running.manager(global);
    expect(groups.map((group) => group.length)).toEqual([5]);
    expect(running.driver.committed.map(({ changes }) => changes[0]?.expectedVersion)).toEqual([
      1, 2, 3, 4, 5, 6,
    ]);
  });

  test('is among several that the next execution reads together', async () => {
    const running = executorOf(
      async (plan, params) => {
        const [wallet] = await running.wallets.findAllByIds([(params as Wallet).id]);
        return plan().update(wallet!.deposit(1n));
      },
      { groupCommit: true },
    );
    const wallet = stored(running);
    const gate = Promise.withResolvers<void>();
    const manager = running.manager(global);
    const persist = manager.persist.bind(manager);
    manager.persist = async (changes) => {
      await gate.promise;
      return persist(changes);
    };
    const first = running.execute(wallet, once);
    await settled();
    const second = running.execute(wallet, once);
    await settled();
    gate.resolve();
    expect(await Promise.all([first, second])).toMatchObject([{ version: 2 }, { version: 3, balance: 102n }]);
  });

  test('is not seen by an execution without grouped commit, which waits for the commit instead', async () => {
    const running = busy();
    const wallet = stored(running);
    const first = running.deposit([wallet]);
    await settled();
    const second = running.deposit([wallet], [wallet], { ...once, groupCommit: false });
    await settled();
    expect(running.seen).toEqual([100n]);
    running.release();
    await Promise.all([first, second]);
    expect(running.seen).toEqual([100n, 101n]);
  });

  test('is not seen outside of actions', async () => {
    const running = busy();
    const wallet = stored(running);
    const first = running.deposit([wallet]);
    await settled();
    expect(await running.wallets.getById(wallet.id)).toBe(wallet);
    running.release();
    await first;
  });

  test('makes stale what was built on it when it is not written, which runs again with fresh reads', async () => {
    const running = busy();
    const wallet = stored(running);
    const first = running.deposit([wallet]);
    await settled();
    const built = [running.deposit([wallet], [wallet], {}), running.deposit([wallet], [wallet], {})];
    const tried = running.deposit([wallet]);
    await settled();
    const refusal = new ConstraintViolationException(global, { constraint: 'a', table: 'b' });
    running.manager(global).persistFailures.push(refusal);
    running.release();
    await expect(first).rejects.toBe(refusal);
    await expect(tried).rejects.toMatchObject({ code: 'stale-record', model: 'Wallet', id: wallet.id.value });
    await running.manual.wake();
    await Promise.all(built);
    expect(running.manager(global).groups.flat()).not.toContainEqual(
      expect.objectContaining({ changes: [expect.objectContaining({ expectedVersion: 4 })] }),
    );
    expect(running.driver.committed.map(({ changes }) => changes[0]?.expectedVersion)).toEqual([1, 2]);
  });

  test('makes stale within a group what was built on one that is not written', async () => {
    const running = busy();
    const [wallet, other] = [stored(running), stored(running)];
    const first = running.deposit([other]);
    await settled();
    const chain = [running.deposit([wallet]), running.deposit([wallet]), running.deposit([wallet])];
    await settled();
    const stale = new StaleRecordException('Wallet', wallet.id.value, 1);
    running.manager(global).persistAll = async (group) =>
      group.map((_each, index) => (index === 0 ? stale : 'alone'));
    running.release();
    await first;
    for (const execution of chain) await expect(execution).rejects.toMatchObject({ code: 'stale-record' });
    expect(running.driver.committed).toHaveLength(1);
  });

  test('is waited for by an execution that only reads it', async () => {
    const running = busy();
    const [wallet, other] = [stored(running), stored(running)];
    const first = running.deposit([wallet]);
    await settled();
    const reading = running.deposit([wallet, other], [other]);
    let isDone = false;
    void reading.then(() => (isDone = true));
    await settled();
    expect(isDone).toBe(false);
    running.release();
    await Promise.all([first, reading]);
    expect(running.seen).toEqual([100n, 101n, 100n]);
    expect(running.driver.committed.map(({ changes }) => changes[0]?.model.id)).toEqual([
      wallet.id,
      other.id,
    ]);
  });

  test('makes an execution that only read it stale when it is not written, also on another shard', async () => {
    const running = busy();
    const [wallet, other] = [stored(running), stored(running, mexico)];
    const first = running.deposit([wallet]);
    await settled();
    const reading = running.deposit([wallet, other], [other]);
    await settled();
    running.manager(global).persistFailures.push(new Error('refused'));
    running.release();
    await expect(first).rejects.toThrow('refused');
    await expect(reading).rejects.toMatchObject({ code: 'stale-record', id: wallet.id.value });
    expect(running.driver.committed).toEqual([]);
  });

  test.each([
    ['refuses as soon as it is written', undefined, { message: 'refused' }],
    ['makes the refusal stale when it is not written', new Error('lost'), { code: 'stale-record' }],
  ])('%s what an execution refuses because of it', async (_what, failure, expected) => {
    const running = busy();
    const wallet = stored(running);
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
    await expect(refused).rejects.toMatchObject(expected);
    await Promise.allSettled([first]);
  });

  test('is not overwritten in the same group by a plan that was not built on it', async () => {
    const running = busy();
    const [wallet, other] = [stored(running), stored(running)];
    const first = running.deposit([other]);
    await settled();
    // Both hold the turn of another wallet, so neither waits for this one.
    const [third, fourth] = [stored(running), stored(running)];
    const both = [running.deposit([third, wallet]), running.deposit([fourth, wallet])];
    await settled();
    running.release();
    await Promise.allSettled([first, ...both]);
    const groups = running.manager(global).groups.map((group) => group.length);
    expect(groups).toEqual([]);
    expect(running.driver.committed).toHaveLength(3);
  });
});
