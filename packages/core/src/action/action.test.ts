import { describe, expect, test } from 'vitest';

import { TestAction, executorOf, openWallet, principal, writtenWallet } from '../../test/test-executor.js';
import { VirtualClock } from '../../test/virtual-clock.js';
import { perform } from './action.js';
import type { Plan } from './plan.js';

const clock = new VirtualClock('2026-01-01T00:00:00Z');

describe('the plan', () => {
  test('is not available outside of perform', async () => {
    let plan: (() => Plan) | undefined;
    const { execute } = executorOf(async (given) => (plan = given));
    await execute();
    expect(() => plan?.()).toThrow(expect.objectContaining({ code: 'plan-unavailable' }));
  });

  test('is not available when perform is called without an executor', async () => {
    const action = new TestAction(clock, async (plan) => plan().add(openWallet()));
    await expect(perform(action, principal, null)).rejects.toMatchObject({ code: 'plan-unavailable' });
  });

  test('is the same everywhere inside one perform', async () => {
    const { execute } = executorOf(async (plan) => {
      const before = plan();
      await Promise.resolve();
      const within = await Promise.resolve().then(plan);
      return before === plan() && before === within;
    });
    expect(await execute()).toBe(true);
  });

  test('is sealed for a promise that nobody awaited', async () => {
    const opened = Promise.withResolvers<undefined>();
    let leftOver: Promise<unknown> | undefined;
    const { execute, driver } = executorOf(async (plan) => {
      leftOver = opened.promise.then(() => plan().add(openWallet()));
    });
    await execute();
    opened.resolve(undefined);
    await expect(leftOver).rejects.toMatchObject({ code: 'plan-sealed' });
    expect(driver.committed).toMatchObject([{ changes: [] }]);
  });

  test('is sealed after a perform that threw, too', async () => {
    let kept: Plan | undefined;
    const { execute } = executorOf(async (plan) => {
      kept = plan();
      throw new Error('refused');
    });
    await expect(execute()).rejects.toThrow('refused');
    expect(() => kept?.add(openWallet())).toThrow(expect.objectContaining({ code: 'plan-sealed' }));
  });
});

describe('a model that perform returns', () => {
  const stored = writtenWallet();

  test.each([
    ['a next version that perform has not staged', async () => stored.deposit(1n)],
    ['a new model that perform has not staged', async () => openWallet()],
    [
      'a version after the one that perform has staged',
      async (plan: () => Plan) => {
        const next = stored.deposit(1n);
        plan().update(next);
        return next.deposit(2n);
      },
    ],
    [
      'a version of another model than the one that perform has staged',
      async (plan: () => Plan) => {
        plan().add(openWallet());
        return stored.deposit(1n);
      },
    ],
    ['one of several that perform has not staged', async () => [undefined, stored, openWallet()]],
    ['a field of an object', async () => ({ wallet: stored.deposit(1n) })],
    ['deep in a result that contains itself', async () => circular(stored.deposit(1n))],
    ['in a map', async () => new Map([['next', new Set([stored.deposit(1n)])]])],
  ])('is refused when it is %s, and nothing is written', async (_what, work) => {
    const {
      execute,
      driver,
      clock: { sleeps },
    } = executorOf(work);
    await expect(execute()).rejects.toMatchObject({
      code: 'invariant-violation',
      message: expect.stringContaining('stage it with this.plan().update(…) or add(…)') as string,
    });
    expect(driver.committed).toEqual([]);
    expect(sleeps).toEqual([]);
  });

  test.each([
    ['the staged version', async (plan: () => Plan) => plan().update(stored.deposit(1n)), 2],
    [
      'the version that was passed to the plan',
      async (plan: () => Plan) => {
        const next = stored.deposit(1n);
        plan().update(next);
        return next;
      },
      1,
    ],
    ['a model that was read and is unchanged', async () => stored, 1],
  ])('may be %s', async (_what, work, version) => {
    const { execute } = executorOf(work);
    expect(await execute()).toMatchObject({ id: stored.id, version });
  });

  test('is found without calling the getters beside it', async () => {
    const { execute } = executorOf(async () =>
      Object.freeze({
        get secret(): never {
          throw new Error('called');
        },
      }),
    );
    expect(Object.keys((await execute()) as object)).toEqual(['secret']);
  });

  test('is not searched for in a long list beyond its first ten thousand objects', async () => {
    const rows = Array.from({ length: 100_000 }, (_unused, index) => ({ index }));
    const { execute } = executorOf(async () => [...rows, stored.deposit(1n)]);
    expect(await execute()).toHaveLength(100_001);
  });

  test('is not searched for in the empty places of a list', async () => {
    const { execute } = executorOf(async () => Object.assign([], { length: 2 ** 32 - 1 }));
    expect(await execute()).toHaveLength(2 ** 32 - 1);
  });
});

/** A result with a circle. */
function circular(model: unknown): object {
  const outer = { inner: { list: new Array<unknown>() } };
  outer.inner.list.push(outer, Object.freeze({ model }));
  return outer;
}

describe('an execution inside perform', () => {
  test('is refused, and nothing of it is written', async () => {
    const { execute, executor, driver } = executorOf(async (plan, params) => {
      if (params === 'inner') return plan().add(openWallet());
      return executor.execute(principal, TestAction, 'inner');
    });
    await expect(execute('outer')).rejects.toMatchObject({ code: 'nested-execution' });
    expect(driver.committed).toEqual([]);
  });

  test('is refused by another executor, too', async () => {
    const other = executorOf(async () => null);
    const { execute } = executorOf(() => other.execute());
    await expect(execute()).rejects.toMatchObject({ code: 'nested-execution' });
  });

  test('is allowed from a promise that outlives perform', async () => {
    const opened = Promise.withResolvers<undefined>();
    let leftOver: Promise<unknown> | undefined;
    const { execute, executor, driver } = executorOf(async (plan, params) => {
      if (params === 'inner') return plan().add(openWallet());
      leftOver = opened.promise.then(() => executor.execute(principal, TestAction, 'inner'));
      return undefined;
    });
    await execute('outer');
    opened.resolve(undefined);
    await expect(leftOver).resolves.toMatchObject({ version: 1 });
    expect(driver.committed.map(({ action }) => action.params)).toEqual(['"outer"', '"inner"']);
  });
});
