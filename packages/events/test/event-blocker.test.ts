import type { BlockedEvent } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { HeldSlot } from '../src/slots/held-slot.js';
import { EventBlocker } from '../src/subscription/blocked-events.js';
import { deposited } from './account.js';
import { gate } from './delivery-bench.js';
import { testSettings, workerContext } from './worker-context.js';

function heldSlot(slot = 0): HeldSlot {
  return new HeldSlot({ handler: 'one', slot, token: `token ${slot}`, abandoned: false });
}

/** Events of one model, as they are blocked behind an earlier one. */
function waitingEvents(model: string, count: number, bytes?: number): readonly Omit<BlockedEvent, 'token'>[] {
  return Array.from({ length: count }, (_item, index) => ({
    handler: 'one',
    event: deposited(model, index + 1, bytes === undefined ? {} : { bytes }),
    attempts: 0,
    uncounted: 0,
    error: undefined,
    retryAfterMs: undefined,
    dead: false,
    suspect: false,
  }));
}

/** A blocker whose statements are recorded by the ids of their events; `block` decides the result of each. */
function blockerOf(block: (ids: readonly string[]) => Promise<readonly string[]> = async () => []) {
  const clock = new VirtualClock();
  const ended = new AbortController();
  const errors: unknown[] = [];
  const statements: string[][] = [];
  const startedMs: number[] = [];
  const lost: string[] = [];
  const context = workerContext({
    clock,
    settings: testSettings({ blockMax: 3, readBytesMax: 100_000, readMax: 100 }),
    ended: ended.signal,
    onError: (error) => errors.push(error),
  });
  const store = {
    block: (events: readonly BlockedEvent[]) => {
      const ids = events.map(({ event, token }) => `${event.id} ${token}`);
      statements.push(ids);
      startedMs.push(clock.elapsedMs());
      return block(ids);
    },
  };
  const blocker = new EventBlocker(context, store, (tokens) => lost.push(...tokens));
  return { blocker, clock, ended, errors, statements, startedMs, lost };
}

test('many events are blocked in order, in statements with a limited number of events', async () => {
  const { blocker, statements } = blockerOf();
  expect(await blocker.block(heldSlot(), waitingEvents('a', 7))).toBe(true);
  expect(statements).toEqual([
    ['a1 token 0', 'a2 token 0', 'a3 token 0'],
    ['a4 token 0', 'a5 token 0', 'a6 token 0'],
    ['a7 token 0'],
  ]);
});

test('large events are blocked in statements of limited size, and an event beyond the limit is blocked alone', async () => {
  const { blocker, statements } = blockerOf();
  await blocker.block(heldSlot(), waitingEvents('a', 3, 50_000));
  await blocker.block(heldSlot(), waitingEvents('b', 2, 200_000));
  expect(statements.map((ids) => ids.length)).toEqual([2, 1, 1, 1]);
});

test('events that are to be blocked at the same time are blocked together, up to a limit', async () => {
  const { blocker, statements } = blockerOf();
  const [first, second] = [heldSlot(0), heldSlot(1)];
  await Promise.all([
    blocker.block(first, waitingEvents('a', 2)),
    blocker.block(second, waitingEvents('b', 1)),
    blocker.block(first, waitingEvents('c', 1)),
  ]);
  expect(statements).toEqual([['a1 token 0', 'a2 token 0', 'b1 token 1'], ['c1 token 0']]);
});

test('events that could not be blocked are blocked as soon as the database is available, each time after a longer wait', async () => {
  let failing = 4;
  const { blocker, clock, errors, startedMs } = blockerOf(async () => {
    if (failing-- > 0) throw new Error('down');
    return [];
  });
  const blocked = blocker.block(heldSlot(), waitingEvents('a', 1));
  await clock.advance(1_500);
  expect(await blocked).toBe(true);
  expect(startedMs).toEqual([0, 100, 300, 700, 1_500]);
  expect(errors).toHaveLength(4);
});

test('the leases that the database reports as lost are passed on', async () => {
  const { blocker, lost } = blockerOf(async () => ['token 0']);
  await blocker.block(heldSlot(), waitingEvents('a', 1));
  expect(lost).toEqual(['token 0']);
});

test('nothing is blocked in a slot that was lost before, and nothing more in one that is lost meanwhile', async () => {
  const slot = heldSlot();
  const { blocker, statements } = blockerOf(async () => {
    slot.lose();
    return [];
  });
  expect(await blocker.block(slot, waitingEvents('a', 7))).toBe(false);
  expect(statements).toHaveLength(1);
  expect(await blocker.block(slot, waitingEvents('b', 1))).toBe(false);
  expect(statements).toHaveLength(1);
});

test.each(['the slot is lost', 'delivery ends'])('nothing is tried again when %s', async (what) => {
  const { blocker, clock, ended, statements } = blockerOf(() => Promise.reject(new Error('down')));
  const slot = heldSlot();
  const blocked = blocker.block(slot, waitingEvents('a', 1));
  await clock.advance(50);
  if (what === 'delivery ends') ended.abort();
  else slot.lose();
  expect(await blocked).toBe(false);
  await clock.advance(60_000);
  expect(statements).toHaveLength(1);
  expect(await blocker.block(slot, waitingEvents('b', 1))).toBe(false);
  expect(statements).toHaveLength(1);
});

test('events that are to be blocked while a statement is running are blocked together after it', async () => {
  const hold = gate();
  const { blocker, statements } = blockerOf(async () => {
    await hold.opened;
    return [];
  });
  const blocked = ['a', 'b', 'c'].map(async (model, index) => {
    for (let turn = 0; turn < 10 * index; turn++) await Promise.resolve();
    return blocker.block(heldSlot(), waitingEvents(model, 1));
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(statements).toEqual([['a1 token 0']]);
  hold.open();
  expect(await Promise.all(blocked)).toEqual([true, true, true]);
  expect(statements).toEqual([['a1 token 0'], ['b1 token 0', 'c1 token 0']]);
});
