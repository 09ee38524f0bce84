import { expect, test } from 'vitest';

import { holdCommits } from '../../test/hold-commits.js';
import { settled } from '../../test/manual-clock.js';
import { once } from '../../test/staging-executor.js';
import { executorOf, global, mexico, storedWallet } from '../../test/test-executor.js';
import { PatientClock } from '../../test/virtual-clock.js';
import { Wallet } from '../../test/wallet.js';
import type { ExecutorOptions } from '../action/action-executor.js';
import { StaleRecordError } from '../storage/storage-errors.js';
import { setRead } from './provenance.js';

interface Deposit {
  /** Default: the stored wallet. */
  readonly base?: Wallet;
  readonly fails?: boolean;
  /** Whether it only reads the wallet. */
  readonly looks?: boolean;
}

/** An executor whose action deposits 1 into a wallet that the caller may pass; what it stages is kept as a cache would keep it. */
function depositing(options: Partial<ExecutorOptions> = {}) {
  const [staged, seen]: [Wallet[], Wallet[]] = [[], []];
  const running = executorOf(async (plan, params) => {
    const { base, fails = false, looks = false } = params as Deposit;
    const read = base ?? (await running.wallets.getById(wallet.id));
    seen.push(read);
    if (looks) return;
    const next = plan().update(read.deposit(1n));
    staged.push(next);
    if (fails) throw new Error('refused');
  }, options);
  const wallet = storedWallet(running);
  const deposit = (params: Deposit = {}): Promise<unknown> => running.execute(params, once);
  return { running, wallet, staged, seen, deposit };
}

test('a version that a failed action has staged is not the base of another plan', async () => {
  const { running, wallet, staged, deposit } = depositing();
  const { id, createdDate } = wallet;
  await expect(deposit({ fails: true })).rejects.toThrow('refused');
  const [dropped] = staged;
  // Another action commits a version with the same number.
  running.wallets.store(
    new Wallet({ id, createdDate, state: 'OPENED', ownerId: 'owner-1', balance: 500n, version: 2 }),
  );
  await expect(deposit({ base: dropped! })).rejects.toMatchObject({
    code: 'stale-record',
    expectedVersion: 2,
  });
  expect(running.driver.committed).toEqual([]);
  await deposit();
  expect(staged.at(-1)).toMatchObject({ version: 3, balance: 501n });
});

test('a version whose action is not finished is not the base of another plan without groups', async () => {
  const { running, staged, deposit } = depositing();
  const release = holdCommits(running.manager(global));
  const first = deposit();
  await settled();
  const second = deposit({ base: staged[0]! });
  second.catch(() => undefined);
  await settled();
  release();
  await first;
  await expect(second).rejects.toMatchObject({ code: 'stale-record', expectedVersion: 2 });
});

test('the model that staging has returned is the base of another plan once it is committed', async () => {
  const { running, staged, deposit } = depositing();
  await deposit();
  await deposit({ base: staged[0]! });
  expect(staged.map(({ version }) => version)).toEqual([2, 3]);
  expect(running.driver.committed).toHaveLength(2);
});

test('of a plan that was committed on some shards, those versions are the base of another plan', async () => {
  const staged: Wallet[] = [];
  const running = executorOf(async (plan, params) => {
    const bases = params as readonly Wallet[];
    staged.push(...plan().updateAll(bases.map((base) => base.deposit(1n))));
  });
  const wallets = [storedWallet(running, global), storedWallet(running, mexico)];
  running.manager(mexico).persist = ({ changes: [change] }) => Promise.reject(StaleRecordError.of(change!));
  const across = { ...once, allowCrossShard: true };
  await expect(running.execute(wallets, across)).rejects.toMatchObject({ code: 'partial-commit' });
  await running.execute([staged[0]!], once);
  await expect(running.execute([staged[1]!], once)).rejects.toMatchObject({ code: 'stale-record' });
  expect(staged.map(({ version }) => version)).toEqual([2, 2, 3, 3]);
});

test.each(['staged', 'seen'] as const)(
  'a plan depends on the pending version of a model that another execution has %s',
  async (how) => {
    const bench = depositing({ groupCommit: true, clock: new PatientClock('2026-03-03T03:03:03Z') });
    const { running, deposit } = bench;
    const gate = Promise.withResolvers<void>();
    running.manager(global).persist = async ({ changes: [change] }) => {
      await gate.promise;
      // Another process has committed a version 2 of its own.
      if (change?.expectedVersion === 1) throw StaleRecordError.of(change);
      return 'written';
    };
    const calls = [deposit(), deposit({ looks: true })];
    await settled();
    const base = bench[how].at(-1)!;
    expect(base).toMatchObject({ version: 2, balance: 101n });
    calls.push(deposit({ base }));
    await settled();
    gate.resolve();
    const outcomes = await Promise.allSettled(calls);
    expect(outcomes).toMatchObject([
      { reason: { code: 'stale-record', expectedVersion: 1 } },
      { status: 'fulfilled' },
      { reason: { code: 'stale-record', expectedVersion: 2 } },
    ]);
  },
);

test('a version that was read on an earlier timeline is not the base of a plan', async () => {
  const { running, wallet, deposit } = depositing();
  const manager = running.manager(global);
  setRead(wallet, { manager, timeline: manager.timeline });
  manager.timeline++;
  await expect(deposit({ base: wallet })).rejects.toMatchObject({
    code: 'stale-record',
    expectedVersion: 1,
  });
  expect(running.driver.committed).toEqual([]);
});

test('the timeline of another database says nothing about a version', async () => {
  const { running, wallet, deposit } = depositing();
  setRead(wallet, { manager: running.manager(mexico), timeline: 7 });
  await deposit({ base: wallet });
  expect(running.driver.committed).toHaveLength(1);
});

test('a version that was staged on an earlier timeline is not the base of a plan', async () => {
  const { running, staged, deposit } = depositing();
  await deposit();
  running.manager(global).timeline++;
  await expect(deposit({ base: staged[0]! })).rejects.toMatchObject({
    code: 'stale-record',
    expectedVersion: 2,
  });
});
