import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { CallDeadlines } from '../src/call/call-deadlines.js';

interface Call {
  readonly name: string;
}

/** Calls that may take a second; those that take longer are recorded with the time, and no longer watched. */
function deadlines(clock = new VirtualClock()) {
  const expired: string[] = [];
  const running: CallDeadlines<Call> = new CallDeadlines<Call>(1_000, clock, (call) => {
    running.remove(call);
    expired.push(`${call.name} at ${clock.elapsedMs()}`);
  });
  return { clock, running, expired };
}

test('each call expires when its own time is over, with one timer for all of them', async () => {
  const { clock, running, expired } = deadlines();
  running.add({ name: 'first' });
  await clock.advance(400);
  running.add({ name: 'second' });
  running.add({ name: 'third' });
  expect(clock.sleeperCount).toBe(1);
  await clock.advance(599);
  expect(expired).toEqual([]);
  await clock.advance(10_000);
  expect(expired).toEqual(['first at 1000', 'second at 1400', 'third at 1400']);
  expect([...running.calls]).toEqual([]);
});

test('calls that began together expire together, although each timer takes at least a millisecond', async () => {
  class TimerClock extends VirtualClock {
    override sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
      return super.sleep(Math.max(1, durationMs), signal);
    }
  }
  const { clock, running, expired } = deadlines(new TimerClock());
  for (const name of ['first', 'second', 'third']) running.add({ name });
  await clock.advance(10_000);
  expect(expired).toEqual(['first at 1000', 'second at 1000', 'third at 1000']);
});

test('a call that has returned does not expire, and those that began after it do', async () => {
  const { clock, running, expired } = deadlines();
  const [first, second] = [{ name: 'first' }, { name: 'second' }];
  running.add(first);
  await clock.advance(400);
  running.add(second);
  expect([running.remove(first), running.remove(first)]).toEqual([true, false]);
  await clock.advance(10_000);
  expect(expired).toEqual(['second at 1400']);
});

test('a call that begins after all others have ended expires in time', async () => {
  const { clock, running, expired } = deadlines();
  running.add({ name: 'first' });
  await clock.advance(5_000);
  running.add({ name: 'second' });
  await clock.advance(5_000);
  expect(expired).toEqual(['first at 1000', 'second at 6000']);
});

test('after a stop, no call expires and nothing waits for the clock until another call begins', async () => {
  const { clock, running, expired } = deadlines();
  const dropped = { name: 'dropped' };
  running.add(dropped);
  running.stop();
  await clock.advance(0);
  expect([clock.sleeperCount, expired]).toEqual([0, []]);
  running.remove(dropped);
  running.add({ name: 'later' });
  await clock.advance(1_000);
  expect(expired).toEqual(['later at 1000']);
});
