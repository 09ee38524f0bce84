import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { HeldSlot } from '../src/slots/held-slot.js';
import { modelKey } from '../src/subscription/keyed-queue.js';
import { deposited } from './account.js';
import { gate } from './delivery-bench.js';
import { Dispatching } from './dispatching.js';

function slotOf(slot: number): HeldSlot {
  return new HeldSlot({ handler: 'one', slot, token: `${slot}`, abandoned: false });
}

const [a1, a2, a3] = [1, 2, 3].map((version) => deposited('a', version)) as [
  DeliverableEvent,
  DeliverableEvent,
  DeliverableEvent,
];
const [b1, e1] = [deposited('b', 1), deposited('e', 1)];
const no = new Error('no');
const waits = { batchMax: 2, whenBatchFails: 'wait' } as const;

describe('the events of a handler', () => {
  test('are handled in parallel, those of a model one after the other', async () => {
    const one = new Dispatching({ concurrency: 2 });
    const slot = slotOf(0);
    one.handle(slot, a1, a2, e1, b1);
    await one.settled();
    expect(one.calls).toEqual(['a1', 'e1']);
    await one.end(['a1']);
    expect(one.calls).toEqual(['a1', 'e1', 'b1']);
    await one.end(['b1', 'e1']);
    expect(one.calls).toEqual(['a1', 'e1', 'b1', 'a2']);
    await one.end(['a2']);
    expect(one.finished).toEqual(['a1', 'b1', 'e1', 'a2']);
    expect(await one.isIdle()).toBe(true);
  });

  test('are handled slot by slot in batches, which are limited in count and bytes', async () => {
    const one = new Dispatching({ batchMax: 3, concurrency: 2 }, { batchBytesMax: 10 });
    const sized = [4, 6, 1, 20, 1, 1, 1, 1].map((bytes, index) => deposited('a', index + 1, { bytes }));
    one.dispatch.setPaused(true);
    one.handle(slotOf(0), ...sized);
    one.handle(slotOf(1), b1);
    one.dispatch.setPaused(false);
    const calls = ['a1,a2', 'a3', 'a4', 'a5,a6,a7', 'a8'];
    for (const call of calls) await one.end([call]);
    expect(one.calls).toEqual(['a1,a2', 'b1', ...calls.slice(1)]);
  });

  test('count towards the limit of unfinished events until they are finished, which is reported', async () => {
    const one = new Dispatching({}, { unfinishedMax: 2 });
    one.handle(slotOf(0), a1);
    expect(one.dispatch.full).toBe(false);
    one.handle(slotOf(1), b1);
    expect(one.dispatch.full).toBe(true);
    await one.end(['a1']);
    expect([one.dispatch.full, one.roomCount]).toEqual([false, 1]);
    await one.end(['b1']);
    expect(one.roomCount).toBe(1);
  });

  test('leave room for further reads while at most the bytes of four reads are in memory', async () => {
    const one = new Dispatching({}, { readBytesMax: 100 });
    const rooms = [one.dispatch.readRoom];
    // Only the headers of this event are in memory: 50 bytes as JSON.
    const large = { ...e1, omitted: true, headers: { trace: 'x'.repeat(38) } };
    for (const [event, bytes] of [
      [large, 1_000],
      [a1, 50],
      [a2, 100],
      [b1, 101],
    ] as const) {
      // prettier-ignore
      one.handle(slotOf(0), { ...event, bytes });
      rooms.push(one.dispatch.readRoom);
    }
    expect(rooms).toEqual([4, 3, 3, 2, 0]);
    await one.end(['b1']);
    expect([one.dispatch.readRoom, one.roomCount]).toEqual([2, 1]);
    await one.end(['e1', 'a1']);
    await one.end(['a2']);
    expect([one.dispatch.readRoom, one.roomCount]).toEqual([4, 1]);
  });

  test('that were abandoned with their slot are no longer unfinished, and those of other slots continue', async () => {
    const one = new Dispatching({}, { unfinishedMax: 2 });
    const [lost, other] = [slotOf(0), slotOf(1)];
    one.handle(lost, a1, a2);
    one.handle(other, b1);
    await one.settled();
    lost.lose();
    one.dispatch.drop(lost.lost.reason, lost);
    await one.settled();
    expect([one.calls, one.finished, one.dispatch.full]).toEqual([['a1', 'b1'], [], false]);
    await one.end(['b1']);
    expect(one.finished).toEqual(['b1']);
    expect(await one.isIdle()).toBe(true);
  });

  test('are not handled while too many calls ignore their aborted signal', async () => {
    const one = new Dispatching();
    for (let count = 0; count < 2; count++) one.abandoned.add('other');
    one.handle(slotOf(0), a1);
    await one.settled();
    expect(one.calls).toEqual([]);
    one.abandoned.remove('other');
    await one.end(['a1']);
    expect(one.finished).toEqual(['a1']);
  });

  test('are not handled while the handler is paused', async () => {
    const one = new Dispatching();
    one.dispatch.setPaused(true);
    one.handle(slotOf(0), a1);
    await one.settled();
    expect(one.calls).toEqual([]);
    expect(await one.isIdle()).toBe(false);
    one.dispatch.setPaused(false);
    await one.end(['a1']);
    expect(one.finished).toEqual(['a1']);
  });

  test('end without a call when everything must end', async () => {
    const one = new Dispatching();
    const slot = slotOf(0);
    one.dispatch.setPaused(true);
    one.handle(slot, a1, e1);
    one.ended.abort();
    one.dispatch.drop(no);
    expect(await one.isIdle()).toBe(true);
    expect([one.calls, one.finished]).toEqual([[], []]);
  });

  test.each([
    ['it is paused', (one: Dispatching, is: boolean) => one.dispatch.setPaused(is)],
    [
      'too many abandoned calls are still running',
      ({ abandoned }: Dispatching, is: boolean) => {
        for (let count = 0; count < 2; count++) abandoned[is ? 'add' : 'remove']('other');
      },
    ],
  ])('are held back, and handled in order later, when they are loaded while %s', async (_when, hold) => {
    const one = new Dispatching();
    const load = gate();
    one.loaded = load.opened;
    one.handle(slotOf(0), { ...a1, omitted: true }, a2);
    await one.settled();
    hold(one, true);
    load.open();
    await one.settled();
    expect([one.calls, one.dispatch.waitingSlots]).toEqual([[], new Set()]);
    hold(one, false);
    await one.end(['a1']);
    await one.end(['a2']);
    expect(one.finished).toEqual(['a1', 'a2']);
    expect(await one.isIdle()).toBe(true);
  });
});

describe('an event that a stopping process has read for a paused handler', () => {
  test('is left to the next process', async () => {
    const one = new Dispatching({}, { unfinishedMax: 2 });
    one.dispatch.setPaused(true);
    one.handle(slotOf(0), a1, a2);
    const over = one.retry(slotOf(0), e1);
    one.stopping.abort();
    one.dispatch.setPaused(true);
    expect(await one.isIdle()).toBe(true);
    expect([one.calls, over, one.dispatch.full]).toEqual([[], ['e1'], false]);
  });
});

describe('retries', () => {
  test.each([
    [1, 1],
    [3, 1],
    [4, 2],
  ])('of a handler with a concurrency of %i use at most %i of it', (concurrency, places) => {
    const { dispatch } = new Dispatching({ concurrency });
    expect([dispatch.retriesMax, dispatch.retriesOfSlotMax]).toEqual([places, Infinity]);
  });

  test('of a batch handler are at most one that is running and one that is next, for each slot', () => {
    expect(new Dispatching({ batchMax: 1 }).dispatch.retriesOfSlotMax).toBe(2);
  });

  test.each([
    [7_000, 7_000],
    [3_000, 5_000],
  ])(
    'wait no longer than the longest backoff, %i ms, or the time of a last chance, %i ms',
    (backoffMaxMs, waitMs) => {
      const { dispatch } = new Dispatching({ retry: { backoffMaxMs } }, { leaseMs: 5_000 });
      expect(dispatch.waitMaxMs).toBe(waitMs);
    },
  );

  test('are made before waiting work of their model, and end when their outcome is known', async () => {
    const one = new Dispatching();
    const slot = slotOf(0);
    one.handle(slot, a2, a3);
    const over = one.retry(slot, a1);
    await one.end(['a2']);
    expect([one.calls, over]).toEqual([['a2', 'a1'], []]);
    await one.end(['a1']);
    expect([one.calls, over, one.asked]).toEqual([['a2', 'a1', 'a3'], ['a1'], ['begin a1', 'end a1']]);
  });

  test('alternate with new events in the queue of their slot', async () => {
    const one = new Dispatching({ batchMax: 1 });
    const slot = slotOf(0);
    one.handle(slot, a1, a2, a3);
    one.retry(slot, deposited('m', 1), deposited('i', 1), e1);
    const order = ['a1', 'e1', 'a2', 'i1', 'a3', 'm1'];
    for (const call of order) await one.end([call]);
    expect(one.calls).toEqual(order);
  });

  test('that wait for capacity end when the handler is paused, but events do not', async () => {
    const one = new Dispatching({ concurrency: 1 });
    const slot = slotOf(0);
    one.handle(slot, a1, b1);
    const over = one.retry(slot, e1);
    await one.settled();
    one.dispatch.setPaused(true);
    await one.end(['a1']);
    expect([one.calls, over]).toEqual([['a1'], ['e1']]);
    one.dispatch.setPaused(false);
    await one.end(['b1']);
    expect([one.calls, one.asked]).toEqual([['a1', 'b1'], []]);
    expect(await one.isIdle()).toBe(true);
  });

  test('that wait for capacity continue to wait when an unpaused handler is resumed', async () => {
    const one = new Dispatching({ concurrency: 1 });
    one.handle(slotOf(0), a1);
    const over = one.retry(slotOf(0), e1);
    await one.settled();
    one.dispatch.setPaused(false);
    await one.end(['a1']);
    await one.end(['e1']);
    expect([one.calls, over]).toEqual([['a1', 'e1'], ['e1']]);
  });

  test('that wait for capacity end when every call is abandoned', async () => {
    const one = new Dispatching({ concurrency: 1 });
    one.handle(slotOf(0), a1);
    const over = one.retry(slotOf(0), e1);
    await one.settled();
    one.dispatch.drop(no);
    await one.settled();
    expect([one.calls, over, one.asked]).toEqual([['a1'], ['e1'], []]);
  });

  test('that wait for capacity end when their slot is lost, but those of others do not', async () => {
    const one = new Dispatching({ concurrency: 1 });
    const [lost, other] = [slotOf(0), slotOf(1)];
    one.handle(other, a1);
    const [over, left] = [one.retry(lost, e1), one.retry(other, b1)];
    await one.settled();
    lost.lose();
    one.dispatch.drop(lost.lost.reason, lost);
    await one.settled();
    expect([over, left]).toEqual([['e1'], []]);
    await one.end(['a1']);
    await one.end(['b1']);
    expect([one.calls, left]).toEqual([['a1', 'b1'], ['b1']]);
  });
});

describe('a batch that waits', () => {
  test('is tried again with the same events, and holds up only its own slot meanwhile', async () => {
    const one = new Dispatching({ ...waits, concurrency: 1 }, { unfinishedMax: 3 });
    one.handle(slotOf(0), a1);
    await one.settled();
    one.handle(slotOf(0), a2, a3);
    expect(one.dispatch.full).toBe(true);
    await one.end(['a1'], no);
    expect([one.dispatch.full, one.dispatch.waitingSlots, one.roomCount]).toEqual([false, new Set([0]), 1]);
    one.handle(slotOf(1), b1);
    await one.end(['b1']);
    expect(one.calls).toEqual(['a1', 'b1']);
    await one.clock.advance(500);
    expect(one.calls).toEqual(['a1', 'b1', 'a1']);
    expect([one.dispatch.full, one.dispatch.waitingSlots]).toEqual([false, new Set([0])]);
    await one.end(['a1']);
    expect([one.roomCount, one.dispatch.waitingSlots]).toEqual([2, new Set()]);
    await one.end(['a2,a3']);
    expect(one.finished).toEqual(['b1', 'a1', 'a2', 'a3']);
    expect(one.roomCount).toBe(2);
    one.handle(slotOf(1), b1, b1, b1);
    expect(one.dispatch.full).toBe(true);
  });

  test('waits longer each time', async () => {
    const one = new Dispatching(waits);
    one.handle(slotOf(0), a1);
    await one.end(['a1'], no);
    await one.clock.advance(500);
    await one.end(['a1'], no);
    await one.clock.advance(999);
    expect(one.calls).toEqual(['a1', 'a1']);
    await one.clock.advance(1);
    expect(one.calls).toEqual(['a1', 'a1', 'a1']);
    await one.end(['a1']);
    // After each event that had waited, its slot may be read further.
    expect(one.roomCount).toBe(2);
  });

  test('is tried again after the retries of its slot', async () => {
    const one = new Dispatching(waits);
    one.handle(slotOf(0), a1);
    one.retry(slotOf(0), e1);
    await one.end(['a1'], no);
    await one.clock.advance(500);
    await one.end(['e1']);
    expect(one.calls).toEqual(['a1', 'e1', 'a1']);
  });

  test('continues to wait, and counts the time that it has waited, when it is held back', async () => {
    const one = new Dispatching(waits);
    const large = { ...a1, omitted: true as const };
    one.handle(slotOf(0), large);
    await one.end(['a1'], no);
    const load = gate();
    one.loaded = load.opened;
    await one.clock.advance(500);
    one.handle(slotOf(0), a2);
    one.dispatch.setPaused(true);
    load.open();
    await one.settled();
    expect([one.calls, one.dispatch.waitingSlots]).toEqual([['a1'], new Set([0])]);
    one.dispatch.setPaused(false);
    await one.end(['a1'], no);
    expect(one.calls).toEqual(['a1', 'a1']);
    await one.clock.advance(999);
    expect(one.calls).toHaveLength(2);
    await one.clock.advance(1);
    expect(one.calls).toHaveLength(3);
  });

  test('is left to the next process, with the events behind it, when its own process stops', async () => {
    const one = new Dispatching(waits, { unfinishedMax: 1 });
    one.handle(slotOf(0), a1, a2);
    one.handle(slotOf(1), b1);
    await one.end(['a1'], no);
    one.stopping.abort();
    await one.settled();
    one.dispatch.check(e1, slotOf(0));
    const over = one.retry(slotOf(0), e1);
    await one.end(['b1'], no);
    await one.end(['a1'], no);
    expect([one.calls, one.finished]).toEqual([['a1', 'b1', 'a1'], []]);
    expect([one.dispatch.full, one.dispatch.waitingSlots]).toEqual([false, new Set()]);
    expect([over, one.asked, one.errors]).toEqual([['e1'], [], []]);
    expect(await one.isIdle()).toBe(true);
  });

  test('stops waiting when its slot is lost', async () => {
    const one = new Dispatching(waits);
    const slot = slotOf(0);
    one.handle(slot, a1);
    await one.end(['a1'], no);
    slot.lose();
    expect(await one.isIdle()).toBe(true);
    expect([one.calls, one.finished, one.dispatch.waitingSlots]).toEqual([['a1'], [], new Set()]);
  });
});

describe('a model with blocked events', () => {
  test.each([
    ['is handled normally again when a check finds none', false, ['check a'], ['a1']],
    ['stays blocked when a check finds one', true, ['check a', 'block a1'], []],
  ])('%s', async (_what, isStillBlocked, asked, calls) => {
    const one = new Dispatching();
    const slot = slotOf(0);
    one.blocked.add(0, 'Account\0a');
    one.isStillBlocked = () => isStillBlocked;
    one.dispatch.check(a1, slot);
    one.handle(slot, a1);
    await one.settled();
    expect([one.asked, one.calls]).toEqual([asked, calls]);
  });

  test('is checked before its waiting events, so that they are not blocked needlessly', async () => {
    const one = new Dispatching();
    const slot = slotOf(0);
    one.blocked.add(0, 'Account\0a');
    one.retry(slot, a1);
    one.handle(slot, a2);
    one.dispatch.check(a1, slot);
    await one.end(['a1']);
    expect([one.asked, one.calls]).toEqual([
      ['begin a1', 'end a1', 'check a'],
      ['a1', 'a2'],
    ]);
  });

  test.each([
    ['stays blocked', true, ['check a', 'check a', 'block a2'], []],
    ['is handled normally again', false, ['check a', 'check a'], ['a2']],
  ])(
    'is checked again when one of its events was blocked before the answer came, and %s',
    async (_what, isStillBlocked, asked, calls) => {
      const one = new Dispatching();
      const slot = slotOf(0);
      const hold = gate();
      one.blocked.add(0, 'Account\0a');
      const answers = [hold.opened.then(() => false), isStillBlocked];
      one.isStillBlocked = () => answers.shift()!;
      one.dispatch.check(a1, slot);
      await one.settled();
      one.blocked.add(0, 'Account\0a');
      hold.open();
      one.handle(slot, a2);
      await one.settled();
      expect([one.asked, one.calls]).toEqual([asked, calls]);
    },
  );

  test('is not taken for another one whose name and id form the same text when joined', async () => {
    const one = new Dispatching();
    const slot = slotOf(0);
    const [blocked, other] = [
      { ...a2, modelName: 'Bank', modelId: 'Account 1' },
      { ...b1, modelName: 'Bank Account', modelId: '1' },
    ];
    one.blocked.add(0, modelKey(blocked));
    one.isStillBlocked = ({ modelName }) => modelName === blocked.modelName;
    one.dispatch.check(other, slot);
    await one.settled();
    one.handle(slot, blocked, other);
    await one.settled();
    expect([one.asked, one.calls]).toEqual([['check 1', 'block a2'], ['b1']]);
  });

  test('stays blocked for the next holder of its slot', async () => {
    const one = new Dispatching();
    const slot = slotOf(0);
    const hold = gate();
    one.blocked.add(0, 'Account\0a');
    one.isStillBlocked = () => hold.opened.then(() => false);
    one.dispatch.check(a1, slot);
    await one.settled();
    slot.lose();
    hold.open();
    await one.settled();
    one.dispatch.check(a1, slot);
    await one.settled();
    expect([one.asked, one.blocked.has(0, 'Account\0a')]).toEqual([['check a'], true]);
  });
});

test('an error of the database while events are handled is reported, and other events continue', async () => {
  const one = new Dispatching({ concurrency: 1 });
  one.blocked.add(0, 'Account\0a');
  one.isStillBlocked = () => Promise.reject(no);
  one.dispatch.check(a1, slotOf(0));
  one.handle(slotOf(1), b1);
  await one.end(['b1']);
  expect([one.errors, one.finished]).toEqual([[no], ['b1']]);
});
