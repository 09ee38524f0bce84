import { VirtualClock } from '@framework/testing';
import { expect, test, vi } from 'vitest';

import { keptInMemory } from '../../core/test/kept-in-memory.js';
import { CallDeadlines, TurnTime, logRestartNeed } from '../src/call/call-deadlines.js';

test('a call that has ended is released at once, however long it might have taken, and whatever else is running', async () => {
  const clock = new VirtualClock();
  const running = new CallDeadlines<object>(30_000, clock, () => undefined);
  const ended: WeakRef<object>[] = [];
  const begin = (): object => {
    const call = { payload: 'x'.repeat(1_000) };
    running.add(call);
    return call;
  };
  const endTogether = (): void => {
    const calls = Array.from({ length: 16 }, begin);
    for (const call of calls) running.remove(call);
    ended.push(...calls.map((call) => new WeakRef(call)));
  };
  const slow = begin();
  for (let round = 0; round < 100; round++) {
    endTogether();
    await clock.advance(1);
  }
  expect(await keptInMemory(ended)).toBe(0);
  expect([...running.calls]).toEqual([slow]);
});

test('calls that take too long expire in the order in which they began, each at its own time', async () => {
  const clock = new VirtualClock();
  const expired: [string, number][] = [];
  const running = new CallDeadlines<{ readonly name: string }>(100, clock, (call) => {
    running.remove(call);
    expired.push([call.name, clock.elapsedMs()]);
  });
  const calls = ['a', 'b', 'c', 'd'].map((name) => ({ name }));
  for (const call of calls) {
    running.add(call);
    await clock.advance(30);
  }
  running.remove(calls[1]!);
  await clock.advance(1_000);
  running.add({ name: 'e' });
  await clock.advance(1_000);
  expect(expired.map(([name]) => name)).toEqual(['a', 'c', 'd', 'e']);
  const startMs = expired[0]![1] - 100;
  expect(expired.map(([, ms]) => ms - startMs)).toEqual([100, 160, 190, 1_220]);
});

test.each([
  ['in the same turn', 0],
  ['later', 1],
])('a call that begins after a stop expires like any other: %s', async (_when, turns) => {
  const clock = new VirtualClock();
  const expired: object[] = [];
  const running = new CallDeadlines<object>(100, clock, (call) => {
    running.remove(call);
    expired.push(call);
  });
  for (let round = 0; round < 3; round++) {
    const [before, after] = [{}, {}];
    running.add(before);
    running.remove(before);
    running.stop();
    for (let turn = 0; turn < turns; turn++) await clock.advance(1);
    running.add(after);
    await clock.advance(99);
    expect(expired.includes(after)).toBe(false);
    await clock.advance(1);
    expect(expired.at(-1)).toBe(after);
  }
  expect(expired).toHaveLength(3);
});

test('the time of work that throws counts for its turn, like that of any other', async () => {
  const clock = new VirtualClock();
  let elapsedMs = 0;
  const turn = new TurnTime({
    now: () => clock.now(),
    elapsedMs: () => elapsedMs,
    sleep: (durationMs, signal) => clock.sleep(durationMs, signal),
    after: (durationMs, work) => clock.after(durationMs, work),
  });
  for (let round = 0; round < 3; round++) {
    for (let call = 0; call < 4; call++) {
      expect(turn.spent).toBe(false);
      const work = (): never => {
        elapsedMs += 5;
        throw new Error('no');
      };
      expect(() => turn.measure(work)).toThrow('no');
    }
    expect(turn.spent).toBe(true);
    await clock.advance(1);
  }
});

test('the line about a restart contains the number of abandoned calls of each handler', () => {
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
