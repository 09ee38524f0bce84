import { describe, expect, test } from 'vitest';
import { type TestExecutor, executorOf, global, mexico, openWallet } from '../../test/test-executor.js';
import { FrameworkException } from '../errors/framework-exception.js';
import {
  CommitOutcomeUnknownException,
  ConstraintViolationException,
  StaleRecordException,
} from '../errors/storage-exceptions.js';

const unknown = new CommitOutcomeUnknownException(global, 'action-1', { session: 'session-1' });

/** Runs an action whose commit gets no answer, and the log says each of these in turn. */
function lost(...outcomes: readonly (boolean | Error)[]): TestExecutor & { performed: () => number } {
  let performed = 0;
  const running = executorOf(async () => ++performed);
  running.manager(global).persistFailures.push(unknown);
  running.manager(global).outcomes.push(...outcomes);
  return { ...running, performed: () => performed };
}

/** Stages a wallet on each shard, of which the later one fails. */
function onBothShards(failure: unknown): TestExecutor & { performed: () => number } {
  let performed = 0;
  const running = executorOf(async (plan) => {
    performed++;
    return plan().addAll([openWallet(mexico), openWallet(global)]);
  });
  running.manager(mexico).persistFailures.push(failure);
  return { ...running, performed: () => performed };
}

describe('when the outcome of a commit is not known', () => {
  test('the log is asked; when it holds the action, the first result is given without a second perform', async () => {
    const { execute, manager, performed, driver } = lost(true);
    expect(await execute()).toBe(1);
    expect(performed()).toBe(1);
    expect(manager(global).asked).toEqual([unknown]);
    expect(driver.committed).toEqual([]);
  });

  test('the action runs again when the log does not hold it', async () => {
    const { execute, performed, driver, clock } = lost(false);
    expect(await execute()).toBe(2);
    expect(performed()).toBe(2);
    expect(clock.sleeps).toEqual([10]);
    expect(driver.committed).toHaveLength(1);
  });

  test('the caller is told when that cannot be learnt either', async () => {
    const stillUnknown = new CommitOutcomeUnknownException(global, 'action-1');
    const { execute, performed, clock } = lost(stillUnknown);
    await expect(execute()).rejects.toBe(stillUnknown);
    expect(performed()).toBe(1);
    expect(clock.sleeps).toEqual([]);
  });

  test('the error is recognised by its code, also when it is of another copy of this package', async () => {
    const { execute, manager } = executorOf(async () => 'done');
    class ForeignException extends FrameworkException {}
    manager(global).persistFailures.push(new ForeignException('commit-outcome-unknown', 'lost'));
    manager(global).outcomes.push(true);
    expect(await execute()).toBe('done');
  });
});

describe('when a later shard fails after an earlier one committed', () => {
  const constraint = new ConstraintViolationException(mexico, { constraint: 'a', table: 'b' });

  test.each([constraint, new StaleRecordException('Wallet', 'wallet-1', 1), new Error('anything')])(
    'the error names the committed and the failed shards, keeps the cause %s, and is not retried',
    async (failure) => {
      const { execute, driver, performed } = onBothShards(failure);
      const error: unknown = await execute(null, { allowCrossShard: true }).catch(
        (thrown: unknown) => thrown,
      );
      expect(error).toMatchObject({
        code: 'partial-commit',
        committed: [global],
        failed: [mexico],
        actionId: driver.committed[0]?.action.id,
      });
      expect((error as Error).cause).toBe(failure);
      expect(driver.committed.map(({ shard }) => shard)).toEqual([global]);
      expect(performed()).toBe(1);
    },
  );

  test('a later shard whose outcome stays unknown is named as unknown, not as failed', async () => {
    const { execute, manager } = onBothShards(unknown);
    manager(mexico).outcomes.push(unknown);
    await expect(execute(null, { allowCrossShard: true })).rejects.toMatchObject({
      code: 'partial-commit',
      committed: [global],
      failed: [],
      unknown: mexico,
    });
  });

  test('a lost answer of the later shard is asked for, too', async () => {
    const { execute, manager } = onBothShards(unknown);
    manager(mexico).outcomes.push(true);
    await expect(execute(null, { allowCrossShard: true })).resolves.toHaveLength(2);
  });

  test('a failure of the first shard is thrown as it is, and nothing is written', async () => {
    const { execute, driver, manager } = onBothShards(undefined);
    manager(global).persistFailures.push(constraint);
    await expect(execute(null, { allowCrossShard: true })).rejects.toBe(constraint);
    expect(driver.committed).toEqual([]);
  });
});
