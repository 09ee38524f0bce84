import { describe, expect, test } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { VirtualClock } from './virtual-clock.js';

const start = new Date('2026-03-01T12:00:00Z');

describe('VirtualClock', () => {
  test('stands still until it is advanced', async () => {
    const clock = new VirtualClock(start);
    expect(clock.now()).toEqual(start);
    await clock.advance(1_500);
    expect(clock.now()).toEqual(new Date('2026-03-01T12:00:01.500Z'));
  });

  test('wakes sleepers in order, each at its own instant', async () => {
    const clock = new VirtualClock(start);
    const woken: string[] = [];
    const sleep = async (name: string, durationMs: number): Promise<void> => {
      await clock.sleep(durationMs);
      woken.push(`${name} ${clock.now().getTime() - start.getTime()}`);
    };
    const all = [sleep('late', 30), sleep('early', 10), sleep('also early', 10), sleep('beyond', 31)];
    await clock.advance(30);
    expect(woken).toEqual(['early 10', 'also early 10', 'late 30']);
    expect(clock.sleeperCount).toBe(1);
    await clock.advance(1);
    await Promise.all(all);
    expect(woken.at(-1)).toBe('beyond 31');
  });

  test('wakes a sleeper that falls asleep while it advances', async () => {
    const clock = new VirtualClock(start);
    let rounds = 0;
    const work = (async () => {
      for (; rounds < 3; rounds++) await clock.sleep(10);
    })();
    await clock.advance(29);
    expect(rounds).toBe(2);
    await clock.advance(1);
    expect(rounds).toBe(3);
    await work;
  });

  test('lets the continuations of a sleeper run before it advances further', async () => {
    const clock = new VirtualClock(start);
    let seen: Date | undefined;
    const work = (async () => {
      await clock.sleep(10);
      await Promise.resolve();
      await Promise.resolve();
      seen = clock.now();
    })();
    await clock.advance(1_000);
    await work;
    expect(seen).toEqual(new Date(start.getTime() + 10));
  });

  test('does not suspend a sleeper for zero time', async () => {
    const clock = new VirtualClock(start);
    await clock.sleep(0);
    await clock.sleep(-1);
    expect(clock.sleeperCount).toBe(0);
  });

  test('can be set to another time of day without waking a sleeper', async () => {
    const clock = new VirtualClock(start);
    let awake = false;
    const work = clock.sleep(10).then(() => (awake = true));
    clock.set(new Date('2030-01-01T00:00:00Z'));
    await clock.advance(9);
    expect(awake).toBe(false);
    expect(clock.now()).toEqual(new Date('2030-01-01T00:00:00.009Z'));
    clock.set(new Date('2020-01-01T00:00:00Z'));
    await clock.advance(1);
    await work;
    expect(clock.now()).toEqual(new Date('2020-01-01T00:00:00.001Z'));
  });

  test('refuses to advance by a negative time', async () => {
    await expect(new VirtualClock().advance(-1)).rejects.toBeInstanceOf(RangeError);
    await expect(new VirtualClock().advance(Number.NaN)).rejects.toBeInstanceOf(RangeError);
  });

  test('lets a sleep end early and forgets it', async () => {
    const clock = new VirtualClock(start);
    const ending = new AbortController();
    const slept = clock.sleep(10, ending.signal);
    ending.abort();
    await slept;
    expect(clock.sleeperCount).toBe(0);
    await clock.sleep(10, ending.signal);
    expect(clock.now()).toEqual(start);
  });

  test('lets a sleep that could have ended early end on time', async () => {
    const clock = new VirtualClock(start);
    const ending = new AbortController();
    const [slept, beside] = [clock.sleep(10, ending.signal), clock.sleep(20)];
    await clock.advance(10);
    await slept;
    ending.abort();
    expect(clock.sleeperCount).toBe(1);
    await clock.advance(10);
    await beside;
  });

  test('calls back once in its turn unless the call is cancelled', async () => {
    const clock = new VirtualClock(start);
    const called: string[] = [];
    const slept = clock.sleep(10).then(() => called.push('slept'));
    const cancel = clock.after(20, () => called.push('cancelled'));
    const late = clock.after(20, () => called.push(`late ${clock.elapsedMs()}`));
    await clock.advance(10);
    await slept;
    cancel();
    expect(clock.sleeperCount).toBe(0);
    await clock.advance(20);
    late();
    expect(called).toEqual(['slept', 'late 20']);
  });

  test('calls back after zero time, once ready work has run, without advancing', async () => {
    const clock = new VirtualClock(start);
    const called: string[] = [];
    await new Promise<void>((resolve) => {
      clock.after(0, () => {
        called.push('after');
        resolve();
      });
      void Promise.resolve()
        .then(() => undefined)
        .then(() => called.push('ready'));
    });
    expect(called).toEqual(['ready', 'after']);
    expect(clock.now()).toEqual(start);
  });

  test('measures durations by its advances, even when the time of day is set', async () => {
    const clock = new VirtualClock(start);
    await clock.advance(10);
    clock.set(new Date('2020-01-01T00:00:00Z'));
    await clock.advance(5);
    expect(clock.elapsedMs()).toBe(15);
  });

  test('advances to the next sleeper if there is one', async () => {
    const clock = new VirtualClock(start);
    const slept = [clock.sleep(30), clock.sleep(10)];
    expect(await clock.wakeNext()).toBe(true);
    await slept[1];
    expect(clock.now().getTime() - start.getTime()).toBe(10);
    expect([await clock.wakeNext(), await clock.wakeNext()]).toEqual([true, false]);
    expect(clock.now().getTime() - start.getTime()).toBe(30);
  });
});

test('sleeps leave nothing behind on a signal that lasts, whether they end or are aborted', async () => {
  const clock = new VirtualClock();
  const { signal } = new AbortController();
  const left = await leftBehind(async () => {
    const ending = new AbortController();
    const slept = [clock.sleep(10, signal), clock.sleep(10_000, ending.signal)];
    const cancel = clock.after(10_000, () => undefined);
    await clock.advance(10);
    cancel();
    ending.abort();
    await Promise.all(slept);
  });
  expect([left, clock.sleeperCount, await clock.wakeNext()]).toEqual([[], 0, false]);
});
