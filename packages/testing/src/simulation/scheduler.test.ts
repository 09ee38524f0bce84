import { describe, expect, test } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { Choices, seededRandom } from './choices.js';
import { BoundExceededError, Scheduler, SimulatedClock, StepOwner } from './scheduler.js';

/** A scheduler, one process of it, and the clock of that process. */
function simulated(bounds = { stepsMax: 1_000, virtualMsMax: 1_000_000 }) {
  const scheduler = new Scheduler(new Choices(seededRandom(1)), bounds);
  const owner = new StepOwner('process');
  return { scheduler, owner, clock: new SimulatedClock(scheduler, owner, new Date(0)) };
}

/** Whether a run ends before it exceeds its bounds. */
async function isWithinBounds(run: Promise<void>): Promise<boolean> {
  try {
    await run;
    return true;
  } catch (error) {
    if (error instanceof BoundExceededError) return false;
    throw error;
  }
}

describe('the clock of a simulated process', () => {
  test('leaves nothing behind on a lasting signal, whether sleeps end, are aborted, or are dropped', async () => {
    const { scheduler, clock } = simulated();
    const { signal } = new AbortController();
    const left = await leftBehind(async () => {
      let isOver = false;
      void clock.sleep(10, signal).then(() => (isOver = true));
      await scheduler.run(() => isOver);
      const ending = new AbortController();
      const aborted = clock.sleep(10_000, ending.signal);
      ending.abort();
      await aborted;
      void clock.sleep(10_000, signal);
      clock.end();
    });
    expect(left).toEqual([]);
  });

  test('neither sleeps nor listens when the time has passed, or the signal is aborted', async () => {
    const { clock } = simulated();
    const aborted = AbortSignal.abort();
    expect(await Promise.all([clock.sleep(0), clock.sleep(-1), clock.sleep(10, aborted)])).toHaveLength(3);
  });

  test('measures durations, whichever way its time of day jumps', async () => {
    const { scheduler, clock } = simulated();
    for (const byMs of [60_000, -120_000]) {
      const [beforeMs, before] = [clock.elapsedMs(), clock.now().getTime()];
      clock.jump(byMs);
      expect([clock.elapsedMs(), clock.now().getTime()]).toEqual([beforeMs, before + byMs]);
      let isOver = false;
      clock.after(10, () => (isOver = true));
      await scheduler.run(() => isOver);
      expect(clock.elapsedMs()).toBe(beforeMs + 10);
    }
  });
});

describe('a scheduler', () => {
  test.each([
    [2, false],
    [3, true],
  ])(
    'ends a run that has more than %d steps, of which this one needs three: %s',
    async (stepsMax, isDone) => {
      const { scheduler, owner } = simulated({ stepsMax, virtualMsMax: 1_000 });
      let count = 0;
      for (let step = 0; step < 3; step++) void scheduler.step(owner, 'a step').then(() => count++);
      expect(await isWithinBounds(scheduler.run(() => count === 3))).toBe(isDone);
    },
  );

  test.each([
    [99, false],
    [100, true],
  ])(
    'ends a run that lasts longer than %d ms, of which this one needs 100: %s',
    async (virtualMsMax, isDone) => {
      const { scheduler, owner } = simulated({ stepsMax: 10, virtualMsMax });
      let isOver = false;
      scheduler.after(owner, 100, 'a timer', () => (isOver = true));
      expect(await isWithinBounds(scheduler.run(() => isOver))).toBe(isDone);
    },
  );

  test('ends a run in which everything waits for ever', async () => {
    const { scheduler, owner } = simulated();
    scheduler.after(owner, Infinity, 'never', () => undefined);
    scheduler.after(owner, 10, 'cancelled', () => undefined)();
    await expect(scheduler.run(() => false)).rejects.toThrow(BoundExceededError);
  });

  test('runs timers of one instant together, and none of an owner that is paused or dead', async () => {
    const { scheduler, owner } = simulated();
    const [paused, dead] = [new StepOwner('paused'), new StepOwner('dead')];
    const ran: string[] = [];
    for (const each of [owner, paused, dead])
      scheduler.after(each, 10, 'a timer', () => ran.push(`${each.name} at ${scheduler.nowMs}`));
    scheduler.pause(paused);
    scheduler.kill(dead);
    scheduler.after(owner, 20, 'the end', () => ran.push('end'));
    await scheduler.run(() => ran.includes('end'));
    expect(ran).toEqual(['process at 10', 'end']);
    scheduler.resume(paused);
    await scheduler.run(() => ran.length === 3);
    expect([ran.at(-1), paused.stalledMs]).toEqual(['paused at 20', 20]);
  });
});

test.each([
  [0, 0, 5],
  [1 - Number.EPSILON, 9, 14],
])('choices stay within their bounds at the end of the random numbers, %d', (random, below, between) => {
  const choices = new Choices(() => random);
  expect([choices.below(10), choices.between(5, 14), choices.below(1)]).toEqual([below, between, 0]);
  expect([choices.chance(0), choices.chance(1)]).toEqual([false, true]);
});

test('choices of a script that is too long or too high stay within their bounds', () => {
  const choices = new Choices(() => 0.5, [99, 99]);
  expect([choices.below(10), choices.between(5, 14), choices.below(10), choices.taken]).toEqual([
    9,
    14,
    0,
    [9, 9, 0],
  ]);
});
