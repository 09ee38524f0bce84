import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { Alarm } from '../src/wake/wake-signal.js';

describe('a wait', () => {
  test('ends when the alarm is rung, and leaves nothing behind that waits for the clock', async () => {
    const clock = new VirtualClock();
    const alarm = new Alarm(clock);
    const wait = alarm.wait(1_000);
    alarm.ring();
    expect(await wait).toBe(true);
    expect(await clock.wakeNext()).toBe(false);
  });

  test('ends at once when the alarm was rung before, but only one', async () => {
    const clock = new VirtualClock();
    const alarm = new Alarm(clock);
    alarm.ring();
    expect(await alarm.wait()).toBe(true);
    const next = alarm.wait(1_000);
    await clock.advance(1_000);
    expect(await next).toBe(false);
    expect(clock.elapsedMs()).toBe(1_000);
  });

  test('ends when its time is over, and says that nobody rang', async () => {
    const clock = new VirtualClock();
    const wait = new Alarm(clock).wait(1_000);
    let rung: boolean | undefined;
    void wait.then((was) => (rung = was));
    await clock.advance(999);
    expect(rung).toBeUndefined();
    await clock.advance(1);
    expect(rung).toBe(false);
  });

  test('without a duration lasts until the alarm is rung', async () => {
    const clock = new VirtualClock();
    const alarm = new Alarm(clock);
    let rung: boolean | undefined;
    void alarm.wait().then((was) => (rung = was));
    await clock.advance(86_400_000);
    expect(rung).toBeUndefined();
    alarm.ring();
    await clock.advance(0);
    expect(rung).toBe(true);
  });
});
