import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { TargetHealth } from './target-health.js';

const reason = 'full';

/** Fails messages for a target, one after the other. */
function fail(health: TargetHealth, target: string, ...ids: readonly string[]) {
  return ids.map((id) => health.failed(id, target, { isPassed: false, reason }));
}

test('a target with one failed message may be tried at once, and with two waits a second, later up to ten', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  fail(health, 't', 'a');
  expect(health.waitOf('new', 't')).toBeUndefined();
  const waits: number[] = [];
  for (let round = 0; round < 6; round++) {
    health.begin([['b', 't']]);
    fail(health, 't', 'b', 'c', 'd');
    const { ms = 0 } = health.waitOf('b', 't') ?? {};
    waits.push(ms);
    await clock.advance(ms);
    expect(health.waitOf('b', 't')).toBeUndefined();
  }
  expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
  fail(health, 't', 'b');
  health.begin([['b', 't']]);
  fail(health, 't', 'c');
  expect(health.waitOf('new', 't')?.ms).toBe(2_000);
  expect(health.waitOf('new', 'other')).toBeUndefined();
});

test('a target is left alone for the longest time that it has asked for, whatever later answers say', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  const failAsking = (id: string, afterMs?: number) =>
    health.failed(id, 't', { isPassed: false, reason, afterMs });
  failAsking('a', 60_000);
  failAsking('b', 1_000);
  failAsking('c');
  expect(failAsking('a', 0)).toMatchObject({ waitMs: 60_000 });
  expect(health.waitOf('new', 't')).toEqual({ ms: 60_000, reason });
  await clock.advance(59_999);
  failAsking('d', 10);
  expect(health.waitOf('new', 't')).toEqual({ ms: 10, reason });
  health.taken('t', ['a'], clock.elapsedMs());
  expect(health.waitOf('new', 't')).toBeUndefined();
});

test.each([
  [NaN, 1_000],
  [-1, 1_000],
  [Infinity, 86_400_000],
  [1e300, 86_400_000],
])('a target that asks for %d ms is left alone for %d ms', async (afterMs, expected) => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  expect(health.failed('a', 't', { isPassed: false, reason, afterMs })).toMatchObject({ waitMs: expected });
  await clock.advance(expected);
  expect(health.waitOf('new', 't')).toBeUndefined();
});

test('what was sent before a target has asked to be left alone does not take that back', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  const begunMs = health.begin([['a', 't']]);
  await clock.advance(1);
  health.failed('b', 't', { isPassed: false, reason, afterMs: 8_000 });
  health.taken('t', ['a'], begunMs);
  expect(health.waitOf('new', 't')).toEqual({ ms: 8_000, reason });
});

test('messages that have failed let those that have not try a target first, for six seconds', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  fail(health, 't', 'a', 'b');
  expect(health.waitOf('a', 't')).toEqual({ ms: 1_000, reason });
  expect(health.waitOf('new', 't')).toEqual({ ms: 1_000, reason });
  await clock.advance(1_000);
  expect(health.waitOf('new', 't')).toBeUndefined();
  expect(health.waitOf('a', 't')).toEqual({ ms: 6_000, reason });
  await clock.advance(6_000);
  expect(health.waitOf('a', 't')).toBeUndefined();
  health.begin([['new', 't']]);
  // The new one has had its turn.
  expect(health.waitOf('a', 't')).toEqual({ ms: 1_000, reason });
});

test.each([
  [1_000, ['a']],
  [60_000, ['a']],
  [60_000, ['a', 'b', 'c']],
])(
  'a target that has asked for %d ms is tried first by a message that has not failed, after %j',
  async (afterMs, ids) => {
    const clock = new VirtualClock();
    const health = new TargetHealth(clock);
    for (const id of ids) health.failed(id, 't', { isPassed: false, reason, afterMs });
    expect(health.turnOf('new', 't')).toEqual({ ms: afterMs, reason });
    await clock.advance(afterMs);
    expect(health.waitOf('new', 't')).toBeUndefined();
    expect(health.waitOf('a', 't')).toEqual({ ms: 6_000, reason });
    await clock.advance(6_000);
    expect(health.waitOf('a', 't')).toBeUndefined();
  },
);

test('messages that do not come back do not keep a target from those that have failed', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  fail(health, 't', 'a', 'b');
  // Its slot may belong to another process from now on.
  health.waitOf('gone', 't');
  await clock.advance(13_000);
  health.begin([['a', 't']]);
  fail(health, 't', 'a', 'b');
  await clock.advance(2_000);
  expect(health.waitOf('a', 't')).toBeUndefined();
});

test('an outage begins with the first failure after which no target has taken anything', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  fail(health, 'failed once', 'a');
  await clock.advance(1_000);
  health.taken('t', ['b'], health.begin([['b', 't']]));
  expect(health.outageMs).toBeUndefined();
  await clock.advance(1_000);
  fail(health, 't', 'c');
  await clock.advance(1_000);
  fail(health, 'failed once', 'a');
  expect(health.outageMs).toBe(1_000);
});

test('a target that is tried again is tried by one call, and others wait a second for it', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  fail(health, 't', 'a', 'b');
  await clock.advance(1_000);
  health.begin([['new', 't']]);
  expect(health.waitOf('new', 't')).toEqual({ ms: 1_000, reason });
  health.taken('t', ['a'], clock.elapsedMs());
  expect(health.waitOf('new', 't')).toBeUndefined();
});

test('a message is to blame when others were taken after each of its last two failures', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  const failure = async (isOtherTaken: boolean): Promise<boolean> => {
    const [result] = fail(health, 't', 'bad');
    await clock.advance(1);
    const begunMs = health.begin([['new', 't']]);
    if (isOtherTaken) health.taken('t', ['good'], begunMs);
    return result?.isToBlame === true;
  };
  const taken = [true, true, true, false, true, true, true];
  const blamed: boolean[] = [];
  for (const isOtherTaken of taken) blamed.push(await failure(isOtherTaken));
  expect(blamed).toEqual([false, false, true, true, false, false, true]);
});

test('a message that was found to blame stays to blame while its target asks for time, and waits at least as long', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  const failures: unknown[] = [];
  for (const isOtherTaken of [true, true, false, false]) {
    const failure = health.failed('bad', 't', { isPassed: false, reason, afterMs: 20_000 });
    failures.push([failure.isToBlame, failure.waitMs, health.waitOf('new', 't')?.ms]);
    await clock.advance(20_000);
    if (isOtherTaken) health.taken('t', ['good'], health.begin([['new', 't']]));
    await clock.advance(1);
  }
  const asked = [false, 20_000, 20_000];
  const blamed = [true, 20_000, undefined];
  expect(failures).toEqual([asked, asked, blamed, blamed]);
  expect(fail(health, 't', 'bad')).toMatchObject([{ isToBlame: false }]);
});

test('a message that is asked to wait again and again is no suspect when a call gets no answer', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  const isSuspect: boolean[] = [];
  for (const afterMs of [2_000, 2_000, 2_000, undefined]) {
    health.failed('limited', 't', { isPassed: false, reason, afterMs });
    await clock.advance(2_000);
    health.taken('t', ['good'], health.begin([['new', 't']]));
    isSuspect.push(health.isSuspect('limited'));
  }
  expect(isSuspect).toEqual([false, false, false, true]);
});

test('a message is not to blame for what was sent before it had failed, or to another target', async () => {
  const clock = new VirtualClock();
  const health = new TargetHealth(clock);
  for (let round = 0; round < 5; round++) {
    const begunMs = health.begin([
      ['bad', 't'],
      ['new', 'other'],
    ]);
    await clock.advance(1);
    expect(fail(health, 't', 'bad')).toMatchObject([{ isToBlame: false }]);
    health.taken('t', ['good'], begunMs);
    health.taken('other', ['good'], clock.elapsedMs());
  }
});

test('no more is remembered than ten thousand messages and targets', async () => {
  const health = new TargetHealth(new VirtualClock());
  let count = 0;
  const left = await leftBehind(async () => {
    for (let index = 0; index < 12_000; index++) fail(health, `target ${count}`, `message ${count++}`);
  });
  expect(left).toEqual([]);
});
