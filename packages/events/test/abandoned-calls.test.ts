import { VirtualClock } from '@framework/testing';
import { describe, expect, test, vi } from 'vitest';

import { AbandonedCalls, type RestartNeed, logRestartNeed } from '../src/call/call-deadlines.js';

const forMs = 10_000;

/** The abandoned calls of a process that makes no new calls while it has two of them. */
function abandonedCalls() {
  const clock = new VirtualClock();
  const needs: RestartNeed[] = [];
  let roomCount = 0;
  const calls = new AbandonedCalls({ max: 2, forMs, clock, onRestartNeeded: (need) => needs.push(need) });
  calls.onRoom(() => roomCount++);
  return { clock, calls, needs, roomCount: () => roomCount };
}

describe('a restart', () => {
  test('is requested once, when there have been too many abandoned calls for long enough', async () => {
    const { clock, calls, needs } = abandonedCalls();
    for (const handler of ['mails', 'books', 'mails', 'others']) calls.add(handler);
    calls.remove('others');
    await clock.advance(forMs - 1);
    expect(needs).toEqual([]);
    await clock.advance(1);
    const countByHandler = new Map([
      ['mails', 2],
      ['books', 1],
    ]);
    expect(needs).toEqual([{ abandonedCount: 3, countByHandler }]);
    calls.add('mails');
    await clock.advance(2 * forMs);
    expect(needs).toHaveLength(1);
  });

  test('says how many calls of each handler are still running', async () => {
    const { clock, calls, needs } = abandonedCalls();
    for (const handler of ['mails', 'mails', 'mails']) calls.add(handler);
    calls.remove('mails');
    await clock.advance(forMs);
    expect(needs).toEqual([{ abandonedCount: 2, countByHandler: new Map([['mails', 2]]) }]);
  });

  test('is not requested while there are fewer abandoned calls than are allowed', async () => {
    const { clock, calls, needs } = abandonedCalls();
    calls.add('mails');
    await clock.advance(10 * forMs);
    expect(calls.full).toBe(false);
    expect(needs).toEqual([]);
  });

  test('is not requested when enough of the abandoned calls end in time', async () => {
    const { clock, calls, needs } = abandonedCalls();
    for (const handler of ['mails', 'books', 'mails']) calls.add(handler);
    await clock.advance(forMs - 1);
    calls.remove('mails');
    calls.remove('books');
    await clock.advance(10 * forMs);
    expect(needs).toEqual([]);
  });

  test('is requested only after the whole time if there were fewer abandoned calls for a moment', async () => {
    const { clock, calls, needs } = abandonedCalls();
    calls.add('mails');
    calls.add('mails');
    await clock.advance(forMs - 1);
    calls.remove('mails');
    calls.add('mails');
    await clock.advance(forMs - 1);
    expect(needs).toEqual([]);
    await clock.advance(1);
    expect(needs).toHaveLength(1);
  });

  test('is not requested for a process that is stopping', async () => {
    const { clock, calls, needs } = abandonedCalls();
    calls.add('mails');
    calls.add('mails');
    calls.stop();
    await clock.advance(10 * forMs);
    expect(needs).toEqual([]);
    expect(clock.sleeperCount).toBe(0);
  });

  test('is requested on standard error, with the abandoned calls of each handler, when there is no hook', () => {
    const write = vi.spyOn(console, 'error').mockReturnValue();
    const countByHandler = new Map([
      ['mails', 2],
      ['books', 1],
    ]);
    logRestartNeed({ abandonedCount: 3, countByHandler });
    expect(write).toHaveBeenCalledExactlyOnceWith(
      'Delivery has stopped, and this process must be restarted: 3 calls of handlers keep running, although ' +
        'their signal was aborted: mails (2), books (1)',
    );
    write.mockRestore();
  });
});

describe('calls may be made again', () => {
  test('as soon as fewer calls are abandoned than are allowed, which is reported once', () => {
    const { calls, roomCount } = abandonedCalls();
    for (const handler of ['mails', 'books', 'mails']) calls.add(handler);
    calls.remove('mails');
    expect([calls.full, roomCount()]).toEqual([true, 0]);
    calls.remove('mails');
    expect([calls.full, roomCount()]).toEqual([false, 1]);
    calls.remove('books');
    expect([calls.full, roomCount()]).toEqual([false, 1]);
  });

  test('even after a restart was requested', async () => {
    const { clock, calls, roomCount } = abandonedCalls();
    calls.add('mails');
    calls.add('mails');
    await clock.advance(forMs);
    calls.remove('mails');
    expect([calls.full, roomCount()]).toEqual([false, 1]);
  });
});
