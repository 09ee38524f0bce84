import { type MockInstance, beforeEach, describe, expect, test, vi } from 'vitest';

import { type TestExecutor, executorOf, global, openWallet, storedWallet } from '../test/test-executor.js';
import { type Observer, type Operation, observeWith } from './observer.js';
import { StaleRecordError } from './storage/storage-errors.js';

/** Keeps the operations that it sees, and the kinds of those that have failed. */
class SeenOperations implements Observer {
  readonly seen: Operation[] = [];
  readonly failed: Operation['kind'][] = [];

  async observe<T>(operation: Operation, run: () => Promise<T>): Promise<T> {
    this.seen.push(operation);
    try {
      return await run();
    } catch (error) {
      this.failed.push(operation.kind);
      throw error;
    }
  }
}

describe('an observer of an executor', () => {
  test('sees an execution, its attempt, its reads and its commit', async () => {
    const observer = new SeenOperations();
    const run: TestExecutor = executorOf(
      async (plan) => {
        const wallet = await run.wallets.getById(stored.id);
        plan().update(wallet.deposit(5n));
        return 'done';
      },
      { observer },
    );
    const stored = storedWallet(run);
    expect(await run.execute()).toBe('done');
    expect(observer.seen).toEqual([
      { kind: 'execute', action: 'TestAction' },
      { kind: 'perform', action: 'TestAction', attempt: 1 },
      { kind: 'read', model: 'Wallet', count: 1 },
      { kind: 'persist', action: 'TestAction', shards: [global], eventCount: 1 },
    ]);
    expect(observer.failed).toEqual([]);
  });

  test('sees each attempt with its number, and which of them has failed', async () => {
    const observer = new SeenOperations();
    const run = executorOf(async (plan) => plan().add(openWallet()), { observer });
    run.manager(global).persistFailures.push(new StaleRecordError('Wallet', 'id', 1));
    await run.execute();
    expect(observer.seen.flatMap((each) => (each.kind === 'perform' ? [each.attempt] : []))).toEqual([1, 2]);
    expect(observer.failed).toEqual(['persist']);
  });

  test('sees the statements that write groups', async () => {
    const observer = new SeenOperations();
    const run = executorOf(async (plan) => plan().add(openWallet()), { observer, groupCommit: true });
    await Promise.all([run.execute(), run.execute(), run.execute()]);
    const sizes = observer.seen.flatMap((each) => (each.kind === 'write-group' ? [each.planCount] : []));
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(3);
  });

  test('sees an execution that is refused before its first attempt', async () => {
    const observer = new SeenOperations();
    const run = executorOf(async () => undefined, { observer });
    await expect(run.execute({ text: '\0' })).rejects.toMatchObject({ code: 'unstorable-value' });
    expect(observer.failed).toEqual(['execute']);
  });
});

type Misbehaviour = (run: () => Promise<unknown>) => Promise<unknown>;
const bug = new Error('the observer has a bug');

/** What an observer must not do, and whether the process is warned of it. */
const misbehaviours: readonly (readonly [string, Misbehaviour, 'warned' | 'silent'])[] = [
  ['fails before it calls run', () => Promise.reject(bug), 'warned'],
  ['does not call run', async () => undefined, 'warned'],
  ['calls run later', (run) => Promise.resolve().then(run), 'warned'],
  ['calls run twice', async (run) => [await run(), await run()], 'silent'],
  ['returns something else', async (run) => void (await run()), 'silent'],
  ['never returns', (run) => run().then(() => new Promise(() => undefined)), 'silent'],
  ['returns a promise that is none', (run) => (void run(), hostilePromise()), 'warned'],
  ['fails afterwards', (run) => run().then(() => Promise.reject(bug)), 'warned'],
];

/** A promise that throws when somebody looks at it. */
function hostilePromise(): Promise<unknown> {
  return Object.defineProperty(Promise.resolve(), 'constructor', { get: () => thrown(bug) });
}

/** An observer whose type does not say what it does. */
function misbehaving(misbehave: Misbehaviour, kind?: Operation['kind']): Observer {
  return {
    observe: <T>(operation: Operation, run: () => Promise<T>) =>
      kind === undefined || operation.kind === kind ? (misbehave(run) as Promise<T>) : run(),
  };
}

describe('an observer that', () => {
  let warn: MockInstance<typeof process.emitWarning>;
  beforeEach(() => {
    warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
  });

  describe.each(misbehaviours)('%s', (_what, misbehave, expected) => {
    test.each(['execute', 'perform', 'read', 'persist', 'write-group'] as const)(
      'in %s does not change a commit',
      async (kind) => {
        const observer = misbehaving(misbehave, kind);
        const run: TestExecutor = executorOf(
          async (plan) => {
            const wallet = await run.wallets.getById(stored.id);
            plan().update(wallet.deposit(5n));
            return 'done';
          },
          { observer, groupCommit: true },
        );
        const stored = storedWallet(run);
        expect(await run.execute()).toBe('done');
        expect(run.driver.committed).toHaveLength(1);
        await expect.poll(() => warn.mock.calls).toHaveLength(expected === 'warned' ? 1 : 0);
      },
    );

    test('does not change an error', async () => {
      const observe = observeWith(misbehaving(misbehave));
      const own = new Error('refused');
      for (const fail of [() => Promise.reject(own), () => thrown(own)]) {
        let calls = 0;
        const operation = { kind: 'execute', action: 'TestAction' } as const;
        await expect(observe(operation, () => (calls++, fail()))).rejects.toBe(own);
        expect(calls).toBe(1);
      }
    });
  });

  test('throws is reported once', async () => {
    const observer = { observe: () => thrown(bug) };
    const run = executorOf(async (plan) => plan().add(openWallet()), { observer });
    await Promise.all([run.execute(), run.execute()]);
    expect(run.driver.committed).toHaveLength(2);
    expect(warn.mock.calls).toEqual([[expect.objectContaining({ name: 'FrameworkWarning', cause: bug })]]);
  });
});

function thrown(error: Error): never {
  throw error;
}
