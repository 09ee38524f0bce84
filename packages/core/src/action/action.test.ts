import { describe, expect, test } from 'vitest';

import { TestAction, executorOf, openWallet, principal } from '../../test/test-executor.js';
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
