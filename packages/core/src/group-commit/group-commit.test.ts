import { describe, expect, test } from 'vitest';

import { FakeRepository } from '../../test/fake-repository.js';
import { settled } from '../../test/manual-clock.js';
import { type TestExecutor, executorOf, global, mexico, openWallet } from '../../test/test-executor.js';
import { PatientClock } from '../../test/virtual-clock.js';
import { Wallet } from '../../test/wallet.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import { type GroupSettings, defaultGroupSettings } from '../config/settings.js';
import { observeWith } from '../observer.js';
import type { ChangeSet } from '../storage/change-set.js';
import {
  CommitOutcomeUnknownError,
  ConstraintViolationError,
  ShardUnavailableError,
  StaleRecordError,
} from '../storage/storage-errors.js';
import type { GroupOutcome } from '../storage/transaction-manager.js';
import { GroupCommit } from './group-commit.js';

const once: ExecutionConfiguration = { retry: { attemptsMax: 1 } };
const constraint = new ConstraintViolationError(global, { constraint: 'a', table: 'b' });

/** A list of this length, whose contents do not matter. */
function listOf(count: number): never[] {
  return Array.from({ length: count }, () => ({ payload: '', repository: {} }) as never);
}

/** An executor whose action opens a wallet, and whose first commit waits until it is released. */
async function busy(
  groupCommit: boolean | Partial<GroupSettings> = true,
): Promise<TestExecutor & { readonly release: () => void; readonly first: Promise<unknown> }> {
  const clock = new PatientClock('2026-03-03T03:03:03Z');
  const running = executorOf(
    async (plan, shard) => plan().add(openWallet(shard === 'mexico' ? mexico : global)),
    { groupCommit, clock },
  );
  const gate = Promise.withResolvers<void>();
  const manager = running.manager(global);
  const persist = manager.persist.bind(manager);
  let isFirst = true;
  manager.persist = async (changes) => {
    const waits = isFirst;
    isFirst = false;
    if (waits) await gate.promise;
    return persist(changes);
  };
  const first = running.execute();
  await settled();
  return { ...running, clock, release: gate.resolve, first };
}

/** Executes this many times at once, and lets everything get as far as it can. */
async function executeAll(
  { execute }: TestExecutor,
  count: number,
  configuration: ExecutionConfiguration = once,
): Promise<readonly Promise<unknown>[]> {
  const executions = Array.from({ length: count }, () => execute(undefined, configuration));
  for (const execution of executions) execution.catch(() => undefined);
  await settled();
  return executions;
}

/** Returns these outcomes for the first group, and writes nothing of it. */
function answering(running: TestExecutor, ...outcomes: readonly GroupOutcome[]): void {
  const manager = running.manager(global);
  const persistAll = manager.persistAll.bind(manager);
  let isFirst = true;
  manager.persistAll = (group) => {
    if (!isFirst) return persistAll(group);
    isFirst = false;
    return Promise.resolve(outcomes);
  };
}

describe('group commit', () => {
  test('persists a lone plan exactly as without groups', async () => {
    const { execute, manager, driver } = executorOf(async (plan) => plan().add(openWallet()), {
      groupCommit: true,
    });
    await execute();
    await execute();
    expect(manager(global).groups).toEqual([]);
    expect(driver.committed).toHaveLength(2);
  });

  test('is off by default', async () => {
    const running = executorOf(async (plan) => plan().add(openWallet()));
    await Promise.all(await executeAll(running, 3));
    expect(running.manager(global).groups).toEqual([]);
  });

  test('writes plans that arrive while the writer is busy as one group, in their order', async () => {
    const running = await busy();
    const executions = await executeAll(running, 3);
    expect(running.driver.committed).toEqual([]);
    running.release();
    const wallets = await Promise.all([running.first, ...executions]);
    const { groups } = running.manager(global);
    expect(groups.map((group) => group.length)).toEqual([3]);
    expect(running.driver.committed.map(({ changes }) => changes[0]?.model)).toEqual(wallets);
  });

  test('writes plans that are ready at the same moment as one group, even if the writer is idle', async () => {
    const running = executorOf(async (plan) => plan().add(openWallet()), { groupCommit: true });
    await Promise.all(await executeAll(running, 3));
    expect(running.manager(global).groups.map((group) => group.length)).toEqual([3]);
  });

  test('sends the next group before the executions of the previous one continue', async () => {
    const running = await busy({ plansMax: 2 });
    const manager = running.manager(global);
    const persistAll = manager.persistAll.bind(manager);
    const order: string[] = [];
    manager.persistAll = async (group) => {
      // The delay is like that of a pool that takes a while to lend a connection.
      for (let hop = 0; hop < 50; hop++) await Promise.resolve();
      order.push('sent');
      return persistAll(group);
    };
    const executions = await executeAll(running, 4);
    for (const execution of executions) void execution.then(() => order.push('went on'));
    running.release();
    await Promise.all(executions);
    expect(order.slice(0, 2)).toEqual(['sent', 'sent']);
  });

  test('writes at most its maximum number of plans together', async () => {
    const running = await busy({ plansMax: 2 });
    const executions = await executeAll(running, 5);
    running.release();
    await Promise.all(executions);
    expect(running.manager(global).groups.map((group) => group.length)).toEqual([2, 2]);
    expect(running.driver.committed).toHaveLength(6);
  });

  test('refuses a plan when too many are waiting', async () => {
    const running = await busy({ queueMax: 2 });
    const [, , refused] = await executeAll(running, 3);
    await expect(refused).rejects.toMatchObject({ code: 'shard-unavailable' });
    running.release();
    await running.first;
  });

  test('sends a plan that adds what another one has just added, so that it gets the error of the database', async () => {
    const clock = new PatientClock('2026-03-03T03:03:03Z');
    const wallet = openWallet();
    const running = executorOf(async (plan) => plan().add(wallet), { groupCommit: true, clock });
    running.manager(global).persistFailures.push(undefined, constraint);
    const [one, other] = await Promise.allSettled(await executeAll(running, 2));
    expect(one).toMatchObject({ status: 'fulfilled' });
    expect(other).toMatchObject({ status: 'rejected', reason: constraint });
  });

  test('can be left and joined by a single execution', async () => {
    const running = await busy();
    const [alone] = await executeAll(running, 1, { groupCommit: false });
    await alone;
    expect(running.driver.committed).toHaveLength(1);
    running.release();
    const off = executorOf(async (plan) => plan().add(openWallet()));
    await Promise.all(await executeAll(off, 3, { groupCommit: true }));
    expect(off.manager(global).groups).toHaveLength(1);
  });

  test.each<[string, Partial<GroupSettings>]>([
    ['many models or events', { planSizeMax: 1 }],
    ['long payloads', { planCharactersMax: 10 }],
  ])('leaves out a plan with %s', async (_what, settings) => {
    const running = executorOf(async (plan) => plan().addAll([openWallet(), openWallet()]), {
      groupCommit: settings,
    });
    await Promise.all(await executeAll(running, 3));
    expect(running.manager(global).groups).toEqual([]);
    expect(running.driver.committed).toHaveLength(3);
  });

  test('leaves out a plan with long rows', async () => {
    const repository = Object.assign(new FakeRepository(Wallet), { sizeOf: () => 60 });
    const running = executorOf(
      async (plan, count) => plan().addAll(Array.from({ length: count as number }, () => openWallet())),
      {
        repositories: [repository],
        groupCommit: { planCharactersMax: 500 },
      },
    );
    await Promise.all([running.execute(9), running.execute(9)]);
    expect(running.manager(global).groups).toEqual([]);
    await Promise.all([running.execute(1), running.execute(1)]);
    expect(running.manager(global).groups).toHaveLength(1);
  });

  test('counts the params and headers of a plan without events, which are written once', async () => {
    const running = executorOf(async () => null, { groupCommit: { planCharactersMax: 100 } });
    const execute = (params: string, headers: Readonly<Record<string, string>>): Promise<unknown> =>
      running.execute(params, { headers });
    await Promise.all([execute('x'.repeat(100), {}), execute('x'.repeat(100), {})]);
    await Promise.all([execute('', { note: 'x'.repeat(100) }), execute('', { note: 'x'.repeat(100) })]);
    expect(running.manager(global).groups).toEqual([]);
    await Promise.all([execute('x', {}), execute('y', {})]);
    expect(running.manager(global).groups).toHaveLength(1);
  });

  test('accepts a plan of the maximum size, and leaves out one that is larger', async () => {
    const running = executorOf(
      async (plan, count) => plan().addAll(Array.from({ length: count as number }, () => openWallet())),
      { groupCommit: { planSizeMax: 2 } },
    );
    await Promise.all([running.execute(3), running.execute(3)]);
    expect(running.manager(global).groups).toEqual([]);
    await Promise.all([running.execute(2), running.execute(2)]);
    expect(running.manager(global).groups).toHaveLength(1);
    const long = executorOf(async () => null, { groupCommit: { planCharactersMax: 100 } });
    // The length includes the quotation marks and the empty headers.
    const executeLong = (length: number) => long.execute('x'.repeat(length - 4));
    await Promise.all([executeLong(101), executeLong(101)]);
    expect(long.manager(global).groups).toEqual([]);
    await Promise.all([executeLong(100), executeLong(100)]);
    expect(long.manager(global).groups).toHaveLength(1);
  });

  test.each<[string, boolean, readonly Partial<ChangeSet>[]]>([
    ['takes as many models and events as a plan may have', true, [{ changes: listOf(2), events: listOf(2) }]],
    ['leaves out a plan with too many models', false, [{ changes: listOf(3) }]],
    ['leaves out a plan with too many events', false, [{ events: listOf(3) }]],
    ['leaves out a plan that may be committed already', false, [{ unknownCommits: [] }]],
    ['leaves out a plan with several change sets', false, [{}, {}]],
    ['leaves out a plan with no change set', false, []],
  ])('%s', (_what, isTaken, changeSets) => {
    const { databases } = executorOf(async () => undefined);
    const settings = { ...defaultGroupSettings, planSizeMax: 2 };
    const clock = new PatientClock('2026-03-03T03:03:03Z');
    const commit = new GroupCommit(databases, settings, clock, observeWith(undefined));
    const action = { params: '', headers: '' };
    const empty = { shard: global, action, changes: [], events: [] } as unknown as ChangeSet;
    expect(commit.takes(changeSets.map((changes) => ({ ...empty, ...changes })))).toBe(isTaken);
  });

  test('accepts a plan with an idempotency key whose action has no result', async () => {
    const running = executorOf(async () => undefined, { groupCommit: true });
    const keys = ['one', 'other'];
    await Promise.all(keys.map((idempotencyKey) => running.execute('x', { idempotencyKey })));
    expect(running.manager(global).groups).toHaveLength(1);
  });

  test('leaves out a plan of several shards, and one inside a transaction', async () => {
    const running = executorOf(async (plan) => plan().addAll([openWallet(global), openWallet(mexico)]), {
      groupCommit: true,
    });
    await Promise.all(await executeAll(running, 2, { allowCrossShard: true }));
    expect(running.manager(global).groups).toEqual([]);
    const inside = executorOf(async (plan) => plan().add(openWallet()), { groupCommit: true });
    inside.manager(global).isInside = true;
    await Promise.all(await executeAll(inside, 2));
    expect(inside.manager(global).groups).toEqual([]);
  });

  test('writes each shard separately', async () => {
    const running = await busy();
    expect(await running.execute('mexico')).toBeInstanceOf(Wallet);
    expect(running.driver.committed.map(({ shard }) => shard)).toEqual([mexico]);
    running.release();
    await running.first;
  });
});

describe('a group that fails as a whole', () => {
  test('is written plan by plan, so that only the plan at fault fails', async () => {
    const running = await busy();
    const executions = await executeAll(running, 4);
    const { groupFailures, persistFailures } = running.manager(global);
    groupFailures.push(constraint);
    persistFailures.push(undefined, undefined, constraint);
    running.release();
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
    expect(running.manager(global).groups.map((group) => group.length)).toEqual([4]);
    expect(running.driver.committed).toHaveLength(4);
  });

  test('gives the plan at fault its own error', async () => {
    const running = await busy();
    const executions = await executeAll(running, 2);
    const { groupFailures, persistFailures } = running.manager(global);
    groupFailures.push(constraint);
    persistFailures.push(undefined, constraint);
    running.release();
    const [one, other] = await Promise.allSettled(executions);
    expect(one).toMatchObject({ status: 'rejected', reason: constraint });
    expect(other).toMatchObject({ status: 'fulfilled' });
  });

  test('fails at once for all when the shard is unavailable', async () => {
    const running = await busy();
    const executions = await executeAll(running, 4);
    const unavailable = new ShardUnavailableError(global, 'it is down');
    running.manager(global).groupFailures.push(unavailable);
    running.release();
    for (const execution of executions) await expect(execution).rejects.toBe(unavailable);
    expect(running.manager(global).groups).toHaveLength(1);
  });
});

describe('the plans of a group', () => {
  test('run again when they are stale, and do not disturb the others', async () => {
    const running = await busy();
    answering(running, 'written', new StaleRecordError('Wallet', 'wallet-1', 1));
    const executions = await executeAll(running, 2, {});
    running.release();
    await Promise.all(executions);
    expect(running.clock.sleeps).toEqual([10]);
    // The fake has kept nothing of the group itself.
    expect(running.driver.committed).toHaveLength(2);
  });

  test('are persisted alone if the group could not hold them', async () => {
    const running = await busy();
    answering(running, 'written', 'single');
    const executions = await executeAll(running, 2);
    running.release();
    await Promise.all(executions);
    expect(running.driver.committed).toHaveLength(2);
  });

  test('are each looked up in the log when the outcome is unknown', async () => {
    const running = await busy();
    const unknown = [1, 2, 3].map((index) => new CommitOutcomeUnknownError(global, `action-${index}`));
    answering(running, ...unknown);
    const stillUnknown = new CommitOutcomeUnknownError(global, 'action-3');
    running.manager(global).outcomes.push(true, false, stillUnknown);
    const executions = await executeAll(running, 3);
    running.release();
    const [one, two, three] = await Promise.allSettled(executions);
    expect(running.manager(global).asked).toEqual(unknown);
    expect(one).toMatchObject({ status: 'fulfilled' });
    expect(two).toMatchObject({ status: 'rejected', reason: { code: 'transient-storage' } });
    expect(three).toMatchObject({ status: 'rejected', reason: stillUnknown });
  });
});
