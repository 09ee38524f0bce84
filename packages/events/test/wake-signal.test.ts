import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { WakeSignal } from '../src/worker-context.js';

describe('a wait', () => {
  test('ends when the signal is given, and leaves no timer behind', async () => {
    const clock = new VirtualClock();
    const wakeSignal = new WakeSignal(clock);
    const wait = wakeSignal.wait(1_000);
    wakeSignal.wake();
    expect(await wait).toBe(true);
    expect(await clock.wakeNext()).toBe(false);
  });

  test('ends at once when the signal was given before, but only once', async () => {
    const clock = new VirtualClock();
    const wakeSignal = new WakeSignal(clock);
    wakeSignal.wake();
    expect(await wakeSignal.wait()).toBe(true);
    const next = wakeSignal.wait(1_000);
    await clock.advance(1_000);
    expect(await next).toBe(false);
    expect(clock.elapsedMs()).toBe(1_000);
  });

  test('ends when its time is over, and reports that it was not woken', async () => {
    const clock = new VirtualClock();
    const wait = new WakeSignal(clock).wait(1_000);
    let woken: boolean | undefined;
    void wait.then((was) => (woken = was));
    await clock.advance(999);
    expect(woken).toBeUndefined();
    await clock.advance(1);
    expect(woken).toBe(false);
  });

  test('without a duration lasts until the signal is given', async () => {
    const clock = new VirtualClock();
    const wakeSignal = new WakeSignal(clock);
    let woken: boolean | undefined;
    void wakeSignal.wait().then((was) => (woken = was));
    await clock.advance(86_400_000);
    expect(woken).toBeUndefined();
    wakeSignal.wake();
    await clock.advance(0);
    expect(woken).toBe(true);
  });
});
