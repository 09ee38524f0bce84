import { describe, expect, test } from 'vitest';
import { ManualClock, settled } from '../../test/manual-clock.js';
import { type TestExecutor, executorOf, global, mexico, openWallet } from '../../test/test-executor.js';
import { PatientClock } from '../../test/virtual-clock.js';
import { Wallet } from '../../test/wallet.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import {
  CommitOutcomeUnknownException,
  ConstraintViolationException,
  StaleRecordException,
} from '../errors/storage-exceptions.js';

const once: ExecutionConfiguration = { retry: { attemptsMax: 1 } };
const twice: ExecutionConfiguration = { retry: { attemptsMax: 2 } };

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

/** An executor without turns, whose action may read its wallet a second time and stages from what it read first. */
function rereading(): TestExecutor & {
  readonly readAgain: () => void;
  readonly release: () => void;
  readonly seen: (readonly number[])[];
} {
  const [again, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const seen: (readonly number[])[] = [];
  const running = executorOf(
    async (plan, params) => {
      const { wallet, amount, rereads } = params as Rereading;
      const before = await running.wallets.getById(wallet.id);
      if (rereads) await again.promise;
      const versions = rereads ? [before, await running.wallets.getById(wallet.id)] : [before];
      seen.push(versions.map(({ version }) => version));
      return plan().update(before.deposit(amount));
    },
    { groupCommit: true, turns: false, clock: new PatientClock('2026-03-03T03:03:03Z') },
  );
  const manager = running.manager(global);
  const persist = manager.persist.bind(manager);
  const versions = new Map<string, number>();
  manager.persist = async (changes) => {
    await gate.promise;
    for (const { model, expectedVersion } of changes.changes) {
      if (expectedVersion !== (versions.get(model.id.value) ?? 1))
        throw new StaleRecordException('Wallet', model.id.value, expectedVersion);
      versions.set(model.id.value, model.version);
      running.wallets.store(model as Wallet);
    }
    return persist(changes);
  };
  return { ...running, readAgain: again.resolve, release: gate.resolve, seen };
}

/** The wallet of a state that its type does not have, as another version of the code may know it. */
function deletedOf({ id, version, createdDate, ownerId, balance }: Wallet): Wallet {
  const state = 'DELETED' as 'CLOSED';
  return new Wallet({ id, version, createdDate, ownerId, balance, state });
}

interface Rereading {
  readonly wallet: Wallet;
  readonly amount: bigint;
  readonly rereads: boolean;
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
      { groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const wallet = stored(running);
    const gate = Promise.withResolvers<void>();
    const manager = running.manager(global);
    const persist = manager.persist.bind(manager);
    manager.persist = async (changes) => {
      await gate.promise;
      return persist(changes);
    };
    const first = running.execute(wallet, twice);
    await settled();
    const second = running.execute(wallet, twice);
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

  test('is not read when it is deleted', async () => {
    const running = executorOf(
      async (plan, params) => {
        const { id, deletes } = params as { readonly id: Wallet['id']; readonly deletes: boolean };
        const wallet = await running.wallets.getById(id);
        return plan().update(deletes ? deletedOf(wallet) : wallet.deposit(1n));
      },
      { groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const { id } = stored(running);
    const gate = Promise.withResolvers<void>();
    const manager = running.manager(global);
    const persist = manager.persist.bind(manager);
    manager.persist = async (changes) => {
      await gate.promise;
      return persist(changes);
    };
    const deleting = running.execute({ id, deletes: true }, twice);
    await settled();
    const depositing = running.execute({ id, deletes: false }, twice);
    depositing.catch(() => undefined);
    await settled();
    gate.resolve();
    await deleting;
    await expect(depositing).rejects.toMatchObject({ code: 'entity-not-found' });
    expect(running.driver.committed).toHaveLength(1);
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

  test('takes what was built on it along when it is not written, which runs again at once with fresh reads', async () => {
    const running = busy();
    const wallet = stored(running);
    const first = running.deposit([wallet]);
    await settled();
    const built = [running.deposit([wallet]), running.deposit([wallet])];
    await settled();
    expect(running.seen).toEqual([100n, 101n, 102n]);
    const refusal = new ConstraintViolationException(global, { constraint: 'a', table: 'b' });
    running.manager(global).persistFailures.push(refusal);
    running.release();
    await expect(first).rejects.toBe(refusal);
    // No clock has to move for that.
    await Promise.all(built);
    expect(running.seen).toEqual([100n, 101n, 102n, 100n, 101n]);
    expect(running.driver.committed.map(({ changes }) => changes[0]?.expectedVersion)).toEqual([1, 2]);
  });

  test('takes along within a group what was built on it', async () => {
    const running = busy();
    const [wallet, other] = [stored(running), stored(running)];
    const first = running.deposit([other]);
    await settled();
    const chain = [running.deposit([wallet]), running.deposit([wallet]), running.deposit([wallet])];
    await settled();
    const stale = new StaleRecordException('Wallet', wallet.id.value, 1);
    const persistAll = running.manager(global).persistAll.bind(running.manager(global));
    running.manager(global).persistAll = async (group) => {
      running.manager(global).persistAll = persistAll;
      return group.map((_each, index) => (index === 0 ? stale : 'alone'));
    };
    running.release();
    await first;
    await expect(chain[0]).rejects.toBe(stale);
    await Promise.all(chain.slice(1));
    expect(running.driver.committed.map(({ changes }) => changes[0]?.expectedVersion)).toEqual([1, 1, 2]);
  });

  test.each(['one', 'several'])(
    'is waited for by a run that follows a lost one, which builds on nothing that can be lost (reads %s)',
    async (how) => {
      const gate = Promise.withResolvers<void>();
      let runs = 0;
      const running = executorOf(
        async (plan, params) => {
          const { id } = params as Wallet;
          if (++runs === 3) await gate.promise;
          const wallet =
            how === 'one'
              ? await running.wallets.getById(id)
              : (await running.wallets.findAllByIds([id]))[0]!;
          seen.push(wallet.version);
          return plan().update(wallet.deposit(1n));
        },
        { groupCommit: true, turns: false, clock: new PatientClock('2026-03-03T03:03:03Z') },
      );
      const seen: number[] = [];
      const wallet = stored(running);
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
      const lost = running.execute(wallet, once);
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
      expect(await Promise.all([lost, other])).toMatchObject([{ version: 3 }, { version: 2 }]);
    },
  );

  test('is not continued by a plan that stages from an older version, though its action has read both', async () => {
    const running = rereading();
    const wallet = stored(running);
    const slow = running.execute({ wallet, amount: 5n, rereads: true }, twice);
    await settled();
    const fast = running.execute({ wallet, amount: 100n, rereads: false }, twice);
    await settled();
    running.readAgain();
    await settled();
    expect(running.seen).toEqual([[1], [1, 2]]);
    running.release();
    expect(await Promise.all([slow, fast])).toMatchObject([
      { version: 3, balance: 205n },
      { version: 2, balance: 200n },
    ]);
  });

  test('does not give way to a plan that stages from an older version', async () => {
    const running = rereading();
    const wallet = stored(running);
    const slow = running.execute({ wallet, amount: 5n, rereads: true }, twice);
    await settled();
    const fast = running.execute({ wallet, amount: 100n, rereads: false }, twice);
    await settled();
    running.readAgain();
    await settled();
    const next = running.execute({ wallet, amount: 1n, rereads: false }, twice);
    await settled();
    expect(running.seen.at(-1)).toEqual([2]);
    running.release();
    const wallets = await Promise.all([slow, fast, next]);
    expect(wallets).toMatchObject([{ balance: 206n }, { balance: 200n }, { balance: 201n }]);
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

  test('takes along an execution that only read it when it is not written, also on another shard', async () => {
    const running = busy();
    const [wallet, other] = [stored(running), stored(running, mexico)];
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
    ['refuses as soon as it is written', undefined, [100n, 101n]],
    ['is asked again when it is not written', new Error('lost'), [100n, 101n, 100n]],
  ])('%s what an execution refuses because of it', async (_what, failure, seen) => {
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
    await expect(refused).rejects.toThrow('refused');
    expect(running.seen).toEqual(seen);
    await Promise.allSettled([first]);
  });

  test('makes an execution that refused because of it run again when nobody knows whether it is written', async () => {
    const running = busy();
    const wallet = stored(running);
    const first = running.deposit([wallet]);
    await settled();
    const refused = running.deposit([wallet], []);
    await settled();
    const unknown = new CommitOutcomeUnknownException(global, 'action-1');
    const manager = running.manager(global);
    manager.persistFailures.push(unknown);
    manager.outcomes.push(unknown);
    running.release();
    await expect(first).rejects.toBe(unknown);
    await expect(refused).rejects.toThrow('refused');
    expect(running.seen).toEqual([100n, 101n, 100n]);
  });

  test('does not make an unknown outcome of a plan that continues it a stale one, which would run again', async () => {
    const running = busy();
    const [wallet, other] = [stored(running), stored(running)];
    const first = running.deposit([other]);
    await settled();
    const chain = [running.deposit([wallet]), running.deposit([wallet])];
    await settled();
    const manager = running.manager(global);
    const unknown = ['one', 'two'].map((action) => new CommitOutcomeUnknownException(global, action));
    manager.persistAll = async () => unknown;
    manager.outcomes.push(...unknown);
    running.release();
    await first;
    for (const execution of chain)
      await expect(execution).rejects.toMatchObject({ code: 'commit-outcome-unknown' });
    expect(running.seen).toEqual([100n, 100n, 101n]);
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
