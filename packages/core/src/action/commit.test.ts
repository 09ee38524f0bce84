import { describe, expect, test } from 'vitest';

import { type TestExecutor, executorOf, global, mexico, openWallet } from '../../test/test-executor.js';
import { FrameworkError } from '../errors/framework-error.js';
import type { ChangeSet } from '../storage/change-set.js';
import {
  CommitOutcomeUnknownError,
  ConstraintViolationError,
  DatabasesClosedError,
  ShardUnavailableError,
  StaleRecordError,
  StorageFailureError,
  TransientStorageError,
} from '../storage/storage-errors.js';
import type { ExecutorOptions } from './action-executor.js';
import type { Plan } from './plan.js';

const unknown = new CommitOutcomeUnknownError(global, 'action-1', { session: 'session-1' });

/** Runs an action whose commit gets no answer; the log gives the listed answers in turn. */
function lost(...outcomes: readonly (boolean | Error)[]): TestExecutor & { performed: () => number } {
  let performed = 0;
  const running = executorOf(async () => ++performed);
  running.manager(global).persistFailures.push(unknown);
  running.manager(global).outcomes.push(...outcomes);
  return { ...running, performed: () => performed };
}

/** Stages a wallet on each of two shards, the later of which fails. */
function onBothShards(failure: unknown): TestExecutor & { performed: () => number } {
  let performed = 0;
  const running = executorOf(async (plan) => {
    performed++;
    return plan().addAll([openWallet(mexico), openWallet(global)]);
  });
  running.manager(mexico).persistFailures.push(failure);
  return { ...running, performed: () => performed };
}

describe('when the outcome of a commit is unknown', () => {
  test('the first result is returned without a second perform if the log has it', async () => {
    const { execute, manager, performed, driver } = lost(true);
    expect(await execute()).toBe(1);
    expect(performed()).toBe(1);
    expect(manager(global).asked).toEqual([unknown]);
    expect(driver.committed).toEqual([]);
  });

  test('the action runs again if the log does not contain it', async () => {
    const { execute, performed, driver, clock } = lost(false);
    expect(await execute()).toBe(2);
    expect(performed()).toBe(2);
    expect(clock.sleeps).toEqual([10]);
    expect(driver.committed).toHaveLength(1);
  });

  test('a later failure is thrown unchanged once the log has ruled the commit out', async () => {
    const closed = new DatabasesClosedError(global);
    const { execute, manager } = executorOf(async () => 'done');
    manager(global).answersToLose = 1;
    manager(global).persistFailures.push(undefined, closed);
    const answers = [false];
    manager(global).isCommitted = async () => {
      const answer = answers.shift();
      if (answer === undefined) throw closed;
      return answer;
    };
    await expect(execute()).rejects.toBe(closed);
  });

  test('the caller is told if that cannot be found out, either', async () => {
    const stillUnknown = new CommitOutcomeUnknownError(global, 'action-1');
    const { execute, performed, clock } = lost(stillUnknown);
    await expect(execute()).rejects.toBe(stillUnknown);
    expect(performed()).toBe(1);
    expect(clock.sleeps).toEqual([]);
  });

  test('the caller is told, too, if the log cannot be read for another reason', async () => {
    const refused = new StorageFailureError(global, 'the database refused a statement (XX001)');
    const { execute } = lost(refused);
    const error: unknown = await execute().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'commit-outcome-unknown', shard: global, actionId: 'action-1' });
    expect((error as Error).cause).toBe(refused);
  });

  test('an error that is its own cause is thrown unchanged', async () => {
    const { execute, manager } = executorOf(async () => 'done');
    const endless = new Error('endless');
    endless.cause = endless;
    manager(global).persistFailures.push(endless);
    await expect(execute()).rejects.toBe(endless);
  });

  test('the error is recognised by its code, even from another copy of the package', async () => {
    const { execute, manager } = executorOf(async () => 'done');
    class ForeignError extends FrameworkError {}
    manager(global).persistFailures.push(new ForeignError('commit-outcome-unknown', 'lost'));
    manager(global).outcomes.push(true);
    expect(await execute()).toBe('done');
  });
});

/** Counts its attempts; the answer to the first one is lost, and the log does not contain it. */
function lostOnce(
  work: (run: number) => unknown = (run) => run,
  options: Partial<ExecutorOptions> = {},
): TestExecutor & { readonly runs: () => number } {
  let runs = 0;
  const running = executorOf(async () => work(++runs), options);
  running.manager(global).answersToLose = 1;
  running.manager(global).outcomes.push(false);
  return { ...running, runs: () => runs };
}

describe('an attempt after a commit whose outcome was unknown', () => {
  test('carries the same action and commit, so the database refuses a second effect', async () => {
    const { execute, manager } = lostOnce();
    const sent: ChangeSet[] = [];
    const persist = manager(global).persist.bind(manager(global));
    manager(global).persist = (changes) => {
      sent.push(changes);
      return persist(changes);
    };
    expect(await execute()).toBe(2);
    expect(sent.map(({ unknownCommits }) => unknownCommits)).toEqual([undefined, manager(global).asked]);
    expect(new Set(sent.map(({ action }) => action.id)).size).toBe(1);
  });

  test('returns the result of the committed attempt when the database reports one', async () => {
    const { execute, manager, runs, driver } = lostOnce();
    manager(global).hasHappened = true;
    expect(await execute()).toBe(1);
    expect(runs()).toBe(2);
    expect(driver.committed).toEqual([]);
    // The log is asked once before the second attempt, and once after it.
    expect(manager(global).asked).toHaveLength(2);
  });

  test('fails as a bug if the database reports what the log lacks', async () => {
    const { execute, manager, driver } = lostOnce();
    manager(global).hasHappened = true;
    manager(global).outcomes.push(false, false);
    await expect(execute()).rejects.toMatchObject({ code: 'invariant-violation' });
    expect(driver.committed).toEqual([]);
  });

  test('is an ordinary commit on a shard to which nothing was sent', async () => {
    const { execute, driver, manager } = executorOf(async (plan) => {
      const shard = manager(global).asked.length === 0 ? global : mexico;
      return plan().add(openWallet(shard));
    });
    manager(global).answersToLose = 1;
    manager(global).outcomes.push(false);
    await execute();
    expect(driver.committed).toMatchObject([{ shard: mexico, unknownCommits: undefined }]);
  });

  test('returns the committed result when the rules refuse what was already committed', async () => {
    const { execute, manager } = lostOnce((run) => {
      if (run === 2) throw new Error('overdrawn');
      return run;
    });
    manager(global).hasHappened = true;
    expect(await execute()).toBe(1);
  });

  test('is refused by the rules when nothing was committed', async () => {
    const overdrawn = new Error('overdrawn');
    const { execute, manager } = lostOnce((run) => {
      if (run === 2) throw overdrawn;
    });
    await expect(execute()).rejects.toBe(overdrawn);
    expect(manager(global).asked).toHaveLength(2);
  });

  test('writes no other shard when the first one has the earlier attempt', async () => {
    const { execute, manager, driver } = onBothShards(undefined);
    manager(global).answersToLose = 1;
    manager(global).outcomes.push(false);
    manager(global).hasHappened = true;
    await expect(execute(null, { allowCrossShard: true })).rejects.toMatchObject({
      code: 'partial-commit',
      committed: [global],
      failed: [mexico],
    });
    expect(driver.committed).toEqual([]);
  });

  test('writes nothing when the database of one of several shards cannot be used', async () => {
    const { execute, driver } = onBothShards(undefined);
    const away = new ShardUnavailableError(mexico, 'it is down');
    const [ofGlobal, ofMexico] = driver.opened;
    for (const database of [ofGlobal, ofMexico]) {
      database!.pingFailure = away;
      const retry = { attemptsMax: 1 };
      await expect(execute(null, { allowCrossShard: true, retry })).rejects.toBe(away);
      expect(driver.committed).toEqual([]);
      database!.pingFailure = undefined;
    }
    await execute(null, { allowCrossShard: true });
    expect(driver.committed).toHaveLength(2);
  });

  test('reports both shards as written when the later one has the earlier attempt', async () => {
    let runs = 0;
    const { execute, manager, driver } = executorOf(async (plan) =>
      plan().addAll(++runs === 1 ? [openWallet(mexico)] : [openWallet(global), openWallet(mexico)]),
    );
    manager(mexico).answersToLose = 1;
    manager(mexico).outcomes.push(false);
    manager(mexico).hasHappened = true;
    await expect(execute(null, { allowCrossShard: true })).rejects.toMatchObject({
      code: 'partial-commit',
      committed: [global, mexico],
      failed: [],
    });
    expect(driver.committed.map(({ shard }) => shard)).toEqual([global]);
  });

  test('does not join a group, which would not check for the earlier commit', async () => {
    const { execute, manager } = lostOnce(undefined, { groupCommit: true });
    manager(global).hasHappened = true;
    expect(await execute()).toBe(1);
    expect(manager(global).groups).toEqual([]);
  });

  test('does not mistake the commit of another action for its own', async () => {
    const elsewhere = new CommitOutcomeUnknownError(global, 'another action');
    const abortedDependency = new TransientStorageError(global, 'it may be lost', { cause: elsewhere });
    const overdrawn = new Error('overdrawn');
    let runs = 0;
    const { execute, manager } = executorOf(async () => {
      if (++runs === 2) throw overdrawn;
    });
    manager(global).persistFailures.push(abortedDependency);
    manager(global).hasHappened = true;
    await expect(execute()).rejects.toBe(overdrawn);
    expect(manager(global).asked).toEqual([]);
  });
});

describe('an execution whose policy retries unknown outcomes', () => {
  const retry = { attemptsMax: 3, isRetryable: () => true };
  type Answer = boolean | 'unknown';

  /** Counts its attempts; the answer to the first one is lost, and the log answers the questions about it in turn. */
  function lostAndAsked(
    answers: readonly [Answer, ...Answer[]],
    work: (run: number, plan: () => Plan) => unknown = (run) => run,
  ): TestExecutor & { readonly runs: () => number } {
    let runs = 0;
    const running = executorOf(async (plan) => work(++runs, plan), { retry });
    const left = [...answers];
    running.manager(global).answersToLose = 1;
    running.manager(global).isCommitted = async (asked) => {
      const answer = left.shift() ?? false;
      if (answer === 'unknown') throw asked;
      return answer;
    };
    return { ...running, runs: () => runs };
  }

  test('asks again instead of running again, and returns the result of the committed attempt', async () => {
    const { execute, driver, runs, clock } = lostAndAsked(['unknown', 'unknown', true]);
    expect(await execute()).toBe(1);
    expect(runs()).toBe(1);
    expect(clock.sleeps).toEqual([10, 20]);
    expect(driver.committed).toEqual([]);
  });

  test('runs again as soon as the log says that nothing was committed', async () => {
    const { execute, driver } = lostAndAsked(['unknown', false]);
    expect(await execute()).toBe(2);
    expect(driver.committed).toMatchObject([{ unknownCommits: [{ code: 'commit-outcome-unknown' }] }]);
  });

  test('never asks again about attempts that the log has ruled out', async () => {
    const { execute, manager } = lostAndAsked(['unknown', false, 'unknown']);
    const transient = new TransientStorageError(global, 'the connection was lost');
    manager(global).persistFailures.push(undefined, transient);
    expect(await execute()).toBe(3);
  });

  test('reports an outcome that stays unknown, without another attempt that could fail differently', async () => {
    const { execute, runs } = lostAndAsked(['unknown', 'unknown', 'unknown']);
    await expect(execute()).rejects.toMatchObject({ code: 'commit-outcome-unknown' });
    expect(runs()).toBe(1);
  });

  test('has one effect even if each attempt chooses another shard', async () => {
    const { execute, driver } = lostAndAsked(['unknown', true], (run, plan) => {
      plan().add(openWallet(run === 1 ? global : mexico));
      return run;
    });
    expect(await execute()).toBe(1);
    expect(driver.committed).toEqual([]);
  });

  test('reports which of several shards have been written', async () => {
    const { execute, driver } = lostAndAsked(['unknown', true], (_run, plan) =>
      plan().addAll([openWallet(mexico), openWallet(global)]),
    );
    await expect(execute(null, { allowCrossShard: true })).rejects.toMatchObject({
      code: 'partial-commit',
      committed: [global],
      failed: [mexico],
      cause: expect.objectContaining({ code: 'commit-outcome-unknown' }),
    });
    expect(driver.committed).toEqual([]);
  });

  test('never runs again when some shards are already written', async () => {
    const { execute, driver, performed } = onBothShards(new Error('anything'));
    await expect(execute(null, { allowCrossShard: true, retry })).rejects.toMatchObject({
      code: 'partial-commit',
    });
    expect(driver.committed).toHaveLength(1);
    expect(performed()).toBe(1);
  });
});

describe('when one of several shards fails', () => {
  const constraint = new ConstraintViolationError(mexico, { constraint: 'a', table: 'b' });

  test.each([constraint, new StaleRecordError('Wallet', 'wallet-1', 1), new Error('anything')])(
    'the error names both shards with the cause %s, without a retry',
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

  test('a shard whose outcome stays unknown is reported as unknown, not failed', async () => {
    const { execute, manager } = onBothShards(unknown);
    manager(mexico).outcomes.push(unknown);
    await expect(execute(null, { allowCrossShard: true })).rejects.toMatchObject({
      code: 'partial-commit',
      committed: [global],
      failed: [],
      unknown: mexico,
    });
  });

  test('a lost answer of the later shard is looked up, too', async () => {
    const { execute, manager } = onBothShards(unknown);
    manager(mexico).outcomes.push(true);
    await expect(execute(null, { allowCrossShard: true })).resolves.toHaveLength(2);
  });

  test('a failure of the first shard is thrown unchanged with nothing written', async () => {
    const { execute, driver, manager } = onBothShards(undefined);
    manager(global).persistFailures.push(constraint);
    await expect(execute(null, { allowCrossShard: true })).rejects.toBe(constraint);
    expect(driver.committed).toEqual([]);
  });
});
