import { describe, expect, test } from 'vitest';

import { FakeRepository } from '../../test/fake-repository.js';
import { holdCommits } from '../../test/hold-commits.js';
import { ManualClock, settled } from '../../test/manual-clock.js';
import { Address } from '../../test/order.js';
import { once, stagingExecutor } from '../../test/staging-executor.js';
import { type TestExecutor, executorOf, global, storedWallet } from '../../test/test-executor.js';
import { PatientClock } from '../../test/virtual-clock.js';
import { Wallet } from '../../test/wallet.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import { ShardedId } from '../id/id.js';
import { StaleRecordError } from '../storage/storage-errors.js';

const twice: ExecutionConfiguration = { retry: { attemptsMax: 2 } };

interface Rereading {
  readonly wallet: Wallet;
  readonly amount: bigint;
  readonly rereads: boolean;
  /** Which of the two versions that it reads is the base of its change. */
  readonly from?: 'older' | 'newer';
}

/**
 * An executor without locks on models, whose action may read its wallet a second time: in a list, because reads by id return the
 * same version within an attempt.
 */
function rereading(): TestExecutor & {
  readonly readAgain: () => void;
  readonly release: () => void;
  readonly seen: (readonly number[])[];
  readonly sent: (readonly number[])[];
} {
  const [again, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const seen: (readonly number[])[] = [];
  const sent: (readonly number[])[] = [];
  const running = executorOf(
    async (plan, params) => {
      const { wallet, amount, rereads, from = 'older' } = params as Rereading;
      const [before = wallet] = await running.wallets.findAllByIds([wallet.id]);
      if (rereads) await again.promise;
      const [after = before] = rereads ? await running.wallets.findAllByIds([wallet.id]) : [];
      seen.push([...new Set([before.version, after.version])]);
      return plan().update((from === 'older' ? before : after).deposit(amount));
    },
    { groupCommit: true, modelLocks: false, clock: new PatientClock('2026-03-03T03:03:03Z') },
  );
  const manager = running.manager(global);
  const persist = manager.persist.bind(manager);
  const versions = new Map<string, number>();
  manager.persist = async (changes) => {
    sent.push(changes.changes.map(({ model }) => model.version));
    await gate.promise;
    for (const { model, expectedVersion } of changes.changes) {
      if (expectedVersion !== (versions.get(model.id.value) ?? 1))
        throw new StaleRecordError('Wallet', model.id.value, expectedVersion);
      versions.set(model.id.value, model.version);
      running.wallets.store(model as Wallet);
    }
    return persist(changes);
  };
  return { ...running, readAgain: again.resolve, release: gate.resolve, seen, sent };
}

/** The wallet in a state that its type lacks, but that another version of the code may know. */
function deletedOf({ id, version, createdDate, ownerId, balance }: Wallet): Wallet {
  const state = 'DELETED' as 'CLOSED';
  return new Wallet({ id, version, createdDate, ownerId, balance, state });
}

describe('a model that is staged but not committed yet', () => {
  test('is read by the next execution, which continues it in the same group', async () => {
    const running = stagingExecutor();
    const wallet = storedWallet(running);
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

  test('is among several models that the next execution reads together', async () => {
    const running = executorOf(
      async (plan, params) => {
        const [wallet] = await running.wallets.findAllByIds([(params as Wallet).id]);
        return plan().update(wallet!.deposit(1n));
      },
      { groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const wallet = storedWallet(running);
    const release = holdCommits(running.manager(global));
    const first = running.execute(wallet, twice);
    await settled();
    const second = running.execute(wallet, twice);
    await settled();
    release();
    expect(await Promise.all([first, second])).toMatchObject([{ version: 2 }, { version: 3, balance: 102n }]);
  });

  test('is invisible to an execution without group commit, which awaits the commit', async () => {
    const running = stagingExecutor();
    const wallet = storedWallet(running);
    const first = running.deposit([wallet]);
    await settled();
    const second = running.deposit([wallet], [wallet], { ...once, groupCommit: false });
    await settled();
    expect(running.seen).toEqual([100n]);
    running.release();
    await Promise.all([first, second]);
    expect(running.seen).toEqual([100n, 101n]);
    expect(running.manual.timerCount).toBe(0);
  });

  test.each(['one', 'several'])(
    'is awaited for one second by an independent execution (reads %s)',
    async (how) => {
      const manual = new ManualClock();
      const seen: number[] = [];
      const running = executorOf(
        async (plan, params) => {
          const { id } = params as Wallet;
          const wallet =
            how === 'one'
              ? await running.wallets.getById(id)
              : (await running.wallets.findAllByIds([id]))[0]!;
          seen.push(wallet.version);
          return plan().update(wallet.deposit(1n));
        },
        { groupCommit: true, clock: manual },
      );
      const wallet = storedWallet(running);
      const release = holdCommits(running.manager(global));
      const first = running.execute(wallet, once);
      await settled();
      const second = running.execute(wallet, { ...once, groupCommit: false });
      await settled();
      await manual.pass(999);
      expect(seen).toEqual([1]);
      await manual.pass(1);
      expect(seen).toEqual([1, 1]);
      release();
      await Promise.all([first, second]);
    },
  );

  test('is not read when it is deleted', async () => {
    const running = executorOf(
      async (plan, params) => {
        const { id, deletes } = params as { readonly id: Wallet['id']; readonly deletes: boolean };
        const wallet = await running.wallets.getById(id);
        return plan().update(deletes ? deletedOf(wallet) : wallet.deposit(1n));
      },
      { groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const { id } = storedWallet(running);
    const release = holdCommits(running.manager(global));
    const deleting = running.execute({ id, deletes: true }, twice);
    await settled();
    const depositing = running.execute({ id, deletes: false }, twice);
    depositing.catch(() => undefined);
    await settled();
    release();
    await deleting;
    await expect(depositing).rejects.toMatchObject({ code: 'entity-not-found' });
    expect(running.driver.committed).toHaveLength(1);
  });

  test('is not seen through a repository of another table', async () => {
    const archive = new FakeRepository(Wallet, { table: 'archive' });
    const found: unknown[] = [];
    const running = executorOf(
      async (plan, params) => {
        const { id, isInArchive } = params as { readonly id: Wallet['id']; readonly isInArchive: boolean };
        if (isInArchive) found.push(await archive.getById(id).catch((error: unknown) => error));
        else plan().update((await running.wallets.getById(id)).deposit(1n));
      },
      { groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const { id } = storedWallet(running);
    const release = holdCommits(running.manager(global));
    const depositing = running.execute({ id, isInArchive: false });
    await settled();
    const looking = running.execute({ id, isInArchive: true });
    await settled();
    expect(found).toMatchObject([{ code: 'entity-not-found' }]);
    release();
    await Promise.all([depositing, looking]);
  });

  test('is not seen outside of actions', async () => {
    const running = stagingExecutor();
    const wallet = storedWallet(running);
    const first = running.deposit([wallet]);
    await settled();
    expect(await running.wallets.getById(wallet.id)).toBe(wallet);
    running.release();
    await first;
  });

  test('is not continued by a plan that stages from an older version', async () => {
    const running = rereading();
    const wallet = storedWallet(running);
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
    // A plan that is certainly stale is not sent at all.
    expect(running.sent).toEqual([[2], [3]]);
  });

  test('is continued by a plan that stages from the newer version', async () => {
    const running = rereading();
    const wallet = storedWallet(running);
    const first = running.execute({ wallet, amount: 1n, rereads: false }, once);
    await settled();
    const slow = running.execute({ wallet, amount: 5n, rereads: true, from: 'newer' }, once);
    await settled();
    const fast = running.execute({ wallet, amount: 100n, rereads: false }, once);
    await settled();
    running.readAgain();
    await settled();
    expect(running.seen).toEqual([[1], [2], [2, 3]]);
    running.release();
    expect(await Promise.all([first, fast, slow])).toMatchObject([
      { version: 2, balance: 101n },
      { version: 3, balance: 201n },
      { version: 4, balance: 206n },
    ]);
  });

  test('does not give way to a plan that stages from an older version', async () => {
    const running = rereading();
    const wallet = storedWallet(running);
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
    const running = stagingExecutor();
    const [wallet, other] = [storedWallet(running), storedWallet(running)];
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

  test('is not mistaken for a model of another class with the same id', async () => {
    const running = executorOf(
      async (plan, params) => {
        const wallet = await running.wallets.getById((params as Wallet).id);
        return plan().update(wallet.version === 1 ? wallet.deposit(1n) : address.move('Oslo'));
      },
      { groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') },
    );
    const wallet = storedWallet(running);
    const id = ShardedId.of(Address, wallet.id.value);
    const address = new Address({ id, state: 'KNOWN', city: 'Riga', version: 1 });
    const release = holdCommits(running.manager(global));
    const depositing = running.execute(wallet, once);
    await settled();
    const moving = running.execute(wallet, once);
    await settled();
    release();
    expect(await Promise.all([depositing, moving])).toMatchObject([
      { version: 2, balance: 101n },
      { version: 2, city: 'Oslo' },
    ]);
  });

  test('is read by others while an execution that throws because of it waits', async () => {
    const running = stagingExecutor();
    const wallet = storedWallet(running);
    const first = running.deposit([wallet]);
    await settled();
    const refused = running.deposit([wallet], []);
    await settled();
    const next = running.deposit([wallet]);
    await settled();
    expect(running.seen).toEqual([100n, 101n, 101n]);
    running.release();
    await Promise.all([first, next]);
    await expect(refused).rejects.toThrow('refused');
  });

  test('is not overwritten in its group by a plan independent of it', async () => {
    const running = stagingExecutor();
    const [wallet, other] = [storedWallet(running), storedWallet(running)];
    const first = running.deposit([other]);
    await settled();
    // Each execution holds the lock on a different wallet, so neither waits for the lock on the common one.
    const [third, fourth] = [storedWallet(running), storedWallet(running)];
    const both = [running.deposit([third, wallet]), running.deposit([fourth, wallet])];
    await settled();
    running.release();
    expect(await Promise.allSettled([first, ...both])).toMatchObject([
      { status: 'fulfilled' },
      { status: 'fulfilled' },
      { reason: { code: 'stale-record', id: wallet.id.value } },
    ]);
    const groups = running.manager(global).groups.map((group) => group.length);
    expect(groups).toEqual([]);
    expect(running.driver.committed).toHaveLength(2);
  });
});

/** An executor whose action reads a wallet and changes that one, another one, or none. Its commits wait for their release. */
async function lockedOut() {
  const manual = new ManualClock();
  const seen: number[] = [];
  const running = executorOf(
    async (plan, params) => {
      const changed = params as Wallet | undefined;
      const read = await running.wallets.getById(wallet.id);
      seen.push(read.version);
      if (changed === undefined) throw new Error('refused');
      plan().update((changed.id.value === read.id.value ? read : changed).deposit(1n));
    },
    { groupCommit: true, clock: manual },
  );
  const [wallet, other] = [storedWallet(running), storedWallet(running)];
  const release = holdCommits(running.manager(global));
  await manual.pass(500);
  const first = running.execute(wallet, once);
  await settled();
  await manual.pass(50);
  return { ...running, manual, seen, wallet, other, first, release };
}

describe('a pending version whose row another session keeps locked', () => {
  const refused = { code: 'shard-unavailable', kind: 'locked' };
  let eventCount = 0;
  const ofHandler = (): ExecutionConfiguration => {
    const eventId = `event-${++eventCount}`;
    const handledEvent = { handler: 'notify', eventId, shard: global };
    return { ...once, idempotencyKey: eventId, handledEvent };
  };

  test.each(['reads it', 'is refused by it'])(
    "is awaited for one second when a handler's action only %s",
    async (how) => {
      const { execute, manual, wallet, other, first, release } = await lockedOut();
      const executeOfHandler = () => execute(how === 'reads it' ? other : undefined, ofHandler());
      const early = executeOfHandler();
      let isOver = false;
      early.catch(() => (isOver = true));
      await settled();
      await manual.pass(999);
      expect(isOver).toBe(false);
      await manual.pass(1);
      await expect(early).rejects.toMatchObject(refused);
      const next = execute(wallet, once);
      await settled();
      // It is refused at once, although the wallet was changed again just now: the clock does not advance.
      await expect(executeOfHandler()).rejects.toMatchObject(refused);
      release();
      await Promise.all([first, next]);
    },
  );

  test('is awaited by a handler for one second after it was staged itself', async () => {
    const manual = new ManualClock();
    const running = executorOf(
      async (plan, params) => {
        const read = await running.wallets.getById(wallet.id);
        return plan().update((params === 'other' ? other : read).deposit(1n));
      },
      { groupCommit: true, clock: manual },
    );
    const [wallet, other] = [storedWallet(running), storedWallet(running)];
    const manager = running.manager(global);
    const persist = manager.persist.bind(manager);
    const writes: (() => void)[] = [];
    manager.persist = async (changes) => {
      await new Promise<void>((end) => writes.push(end));
      return persist(changes);
    };
    const earlier = running.execute('wallet', once);
    await settled();
    await manual.pass(600);
    const staging = running.execute('wallet', once);
    await settled();
    writes[0]!();
    await earlier;
    await settled();
    await manual.pass(50);
    await manual.pass(350);
    const early = running.execute('other', ofHandler());
    let isOver = false;
    early.catch(() => (isOver = true));
    await settled();
    expect(isOver).toBe(false);
    await manual.pass(1_000);
    await expect(early).rejects.toMatchObject(refused);
    writes[1]!();
    await staging;
  });

  test('is neither read nor awaited by a handler independent of it', async () => {
    const { execute, manual, seen, wallet, first, release } = await lockedOut();
    // The pending version was queued a second ago.
    await manual.pass(950);
    const later = execute(wallet, { ...ofHandler(), groupCommit: false });
    await settled();
    expect(seen).toEqual([1, 1]);
    release();
    await Promise.allSettled([first, later]);
  });
});
