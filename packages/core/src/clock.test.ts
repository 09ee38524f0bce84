import { AsyncLocalStorage } from 'node:async_hooks';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind } from '../test/left-behind.js';
import { systemClock, timerMaxMs } from './clock.js';

/** Longer than a timer of the platform can wait. */
const foreverMs = 2 ** 40;

function called(durationMs: number): Promise<void> {
  return new Promise((resolve) => systemClock.after(durationMs, resolve));
}

async function abortedSleep(): Promise<void> {
  const ending = new AbortController();
  const slept = systemClock.sleep(foreverMs, ending.signal);
  ending.abort();
  await slept;
}

describe('the system clock', () => {
  test('ends a sleep when its signal is aborted, and begins none if it is aborted already', async () => {
    const ending = new AbortController();
    let isOver = false;
    const slept = systemClock.sleep(foreverMs, ending.signal).then(() => (isOver = true));
    await called(2);
    expect(isOver).toBe(false);
    ending.abort();
    await slept;
    await systemClock.sleep(foreverMs, ending.signal);
  });

  test('does not sleep when the time has already passed, without a warning', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    onTestFinished(() => warn.mockRestore());
    await systemClock.sleep(-5);
    expect(warn).not.toHaveBeenCalled();
  });

  test('calls back after zero time, once ready work has run', async () => {
    const order: string[] = [];
    const after = called(0).then(() => order.push('after'));
    for (let hop = 0; hop < 3; hop++) await Promise.resolve();
    order.push('ready');
    await after;
    expect(order).toEqual(['ready', 'after']);
  });

  test('calls back outside the async context of its caller', async () => {
    const request = new AsyncLocalStorage<string>();
    const contextAfter = (durationMs: number): Promise<unknown> =>
      new Promise((resolve) => systemClock.after(durationMs, () => resolve(request.getStore())));
    const contexts = request.run('first', () => [contextAfter(0), contextAfter(1)]);
    expect(await Promise.all(contexts)).toEqual([undefined, undefined]);
  });

  test('does not call back after a cancellation', async () => {
    const order: number[] = [];
    for (const durationMs of [0, 1]) systemClock.after(durationMs, () => order.push(durationMs))();
    await called(2);
    expect(order).toEqual([]);
  });

  test('leaves no timer and no listener behind, whether a sleep ends or is aborted', async () => {
    const { signal } = new AbortController();
    expect(await leftBehind(() => systemClock.sleep(1, signal))).toEqual([]);
    expect(await leftBehind(abortedSleep)).toEqual([]);
  });

  test('leaves no timer behind when a call is cancelled', async () => {
    expect(await leftBehind(() => systemClock.after(foreverMs, () => undefined)())).toEqual([]);
  });

  test.each([timerMaxMs, timerMaxMs + 1, foreverMs])(
    'neither wakes nor calls back early when the time is %d ms',
    async (durationMs) => {
      const ending = new AbortController();
      const order: string[] = [];
      const slept = systemClock.sleep(durationMs, ending.signal).then(() => order.push('woken'));
      const cancel = systemClock.after(durationMs, () => order.push('called'));
      await called(5);
      expect(order).toEqual([]);
      cancel();
      ending.abort();
      await slept;
    },
  );

  test('can wait for the longest time of a timer of the platform, and no less', () => {
    expect(timerMaxMs).toBe(2_147_483_647);
  });
});
