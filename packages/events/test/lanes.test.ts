import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { AbandonedCalls } from '../src/call/call-deadlines.js';
import { EventHandlerRegistry } from '../src/handler/event-handler-registry.js';
import { EnvelopeFactory } from '../src/handler/row-envelope.js';
import { type EventEnvelope, FrameworkEventHandler } from '../src/index.js';
import { HeldSlot } from '../src/slots/lease-keeper.js';
import { type FlowDependencies, FlowDispatch } from '../src/subscription/event-dispatch.js';
import { BlockedModelSet, type Lane, Lanes } from '../src/subscription/keyed-queue.js';
import { DepositedEvent, deposited } from './account.js';
import { gate, shard } from './delivery-bench.js';
import { testSettings, workerContext } from './worker-context.js';

test('a lane of more items than a call can have arguments loses those that are removed, and no others', () => {
  const count = 150_000;
  const lanes = new Lanes<string>({
    concurrency: 1,
    mayStart: () => false,
    step: () => Promise.resolve(),
    onError: () => undefined,
  });
  for (let index = 0; index < count; index++) {
    lanes.add('slot', 'event');
    lanes.add('slot', 'retry');
  }
  expect(lanes.remove((item) => item === 'retry')).toHaveLength(count);
  expect(new Set(lanes.remove(() => true))).toEqual(new Set(['event']));
});

test('a batch of more events than a call can have arguments is tried again as a whole', async () => {
  const count = 150_000;
  const clock = new VirtualClock();
  const sizes: number[] = [];
  class Batches {
    readonly event = DepositedEvent;
    async handleBatch(envelopes: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
      sizes.push(envelopes.length);
      if (sizes.length === 1) throw new Error('once');
    }
  }
  FrameworkEventHandler({ name: 'one', whenBatchFails: 'wait', batchMax: count })(Batches);
  const [handler] = new EventHandlerRegistry([new Batches()]).handlers;
  const settings = testSettings({ batchBytesMax: 2 ** 30 });
  const around: Partial<FlowDependencies> = {
    context: workerContext({ clock, settings }),
    envelopes: new EnvelopeFactory([shard], []),
    abandoned: new AbandonedCalls({ max: 1, forMs: 1, clock, onRestartNeeded: () => undefined }),
  };
  const dispatch = new FlowDispatch({
    handler: { ...handler!, id: 'one' },
    around: around as FlowDependencies,
    blocked: new BlockedModelSet(),
    onRoom: () => undefined,
  });
  const event = deposited('a', 1);
  const slot = new HeldSlot({ handler: 'one', slot: 0, token: 'token', abandoned: false });
  let finishedCount = 0;
  const onFinished = (): number => finishedCount++;
  dispatch.handle(Array<typeof event>(count).fill(event), slot, { onFinished, more: false });
  await clock.advance(10_000);
  expect([sizes, finishedCount]).toEqual([[count, count], count]);
});

/** Lanes whose steps take one item each, which a test ends by its name. */
function lanesOf(concurrency: number) {
  const started: string[] = [];
  const errors: unknown[] = [];
  const ends = new Map<string, () => void>();
  const may = { start: true };
  const laneOf = new Map<string, Lane<string>>();
  const lanes = new Lanes<string>({
    concurrency,
    mayStart: () => may.start,
    step: async (lane) => {
      const item = lane.items.shift()!;
      laneOf.set(lane.key, lane);
      started.push(item);
      const { opened, open } = gate();
      ends.set(item, open);
      await opened;
      if (item.startsWith('bad')) throw new Error(item);
    },
    onError: (error) => errors.push(error),
  });
  const end = async (...items: readonly string[]): Promise<void> => {
    for (const item of items) ends.get(item)!();
    await settled();
  };
  return { lanes, started, errors, may, end, laneOf: (key: string) => laneOf.get(key)! };
}

/** Lets go on what has nothing to wait for any more. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

describe('lanes', () => {
  test('run side by side up to a bound, each one item at a time, and take turns', async () => {
    const { lanes, started, end } = lanesOf(2);
    for (const key of ['a', 'b', 'c']) for (const number of [1, 2]) lanes.add(key, `${key}${number}`);
    expect(started).toEqual([]);
    lanes.resume();
    expect(started).toEqual(['a1', 'b1']);
    await end('a1');
    expect(started).toEqual(['a1', 'b1', 'c1']);
    await end('b1');
    await end('c1');
    expect(started).toEqual(['a1', 'b1', 'c1', 'a2', 'b2']);
    await end('a2', 'b2');
    expect(started).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'c2']);
  });

  test('go on after an item that failed, which is told', async () => {
    const { lanes, started, errors, end } = lanesOf(1);
    lanes.add('a', 'bad');
    lanes.add('a', 'good');
    lanes.resume();
    await end('bad');
    expect(errors).toMatchObject([{ message: 'bad' }]);
    expect(started).toEqual(['bad', 'good']);
  });

  test('start what is added as the first before what waits in its lane, and only when its step has ended', async () => {
    const { lanes, started, end } = lanesOf(2);
    lanes.add('a', 'second');
    lanes.addFirst('a', 'first');
    expect(started).toEqual(['first']);
    lanes.addFirst('a', 'next');
    expect(started).toEqual(['first']);
    await end('first');
    await end('next');
    expect(started).toEqual(['first', 'next', 'second']);
  });

  test('start nothing while nothing may start', async () => {
    const { lanes, started, may, end } = lanesOf(2);
    may.start = false;
    lanes.addFirst('a', 'a1');
    lanes.add('a', 'a2');
    expect(started).toEqual([]);
    may.start = true;
    lanes.resume();
    expect(started).toEqual(['a1']);
    may.start = false;
    await end('a1');
    expect(started).toEqual(['a1']);
  });

  test('give the place of one that is held back to others, until it is let go', async () => {
    const { lanes, started, end, laneOf } = lanesOf(1);
    for (const item of ['a1', 'a2']) lanes.add('a', item);
    for (const item of ['b1', 'b2']) lanes.add('b', item);
    lanes.resume();
    lanes.hold(laneOf('a'));
    await end('a1');
    lanes.add('a', 'a3');
    lanes.addFirst('a', 'a0');
    await end('b1');
    await end('b2');
    expect(started).toEqual(['a1', 'b1', 'b2']);
    lanes.letGo(laneOf('a'));
    expect(started).toEqual(['a1', 'b1', 'b2', 'a0']);
    await end('a0');
    expect(started.at(-1)).toBe('a2');
  });

  test('do one item at a time of one that is let go before its step has ended', async () => {
    const { lanes, started, end, laneOf } = lanesOf(2);
    for (const item of ['a1', 'a2', 'a3']) lanes.add('a', item);
    lanes.resume();
    lanes.hold(laneOf('a'));
    lanes.letGo(laneOf('a'));
    lanes.resume();
    expect(started).toEqual(['a1']);
    await end('a1');
    expect(started).toEqual(['a1', 'a2']);
  });

  test('are idle at once without work, and otherwise when all of it has ended', async () => {
    const { lanes, end } = lanesOf(2);
    await lanes.idle();
    const told: string[] = [];
    for (const item of ['a1', 'a2']) lanes.add('a', item);
    lanes.add('b', 'b1');
    lanes.resume();
    void lanes.idle().then(() => told.push('one'));
    void lanes.idle().then(() => told.push('other'));
    await end('a1', 'b1');
    expect(told).toEqual([]);
    await end('a2');
    expect(told).toEqual(['one', 'other']);
  });

  test('are idle when what waits is removed, also from one that is held back and let go', async () => {
    const { lanes, end, laneOf, may } = lanesOf(2);
    for (const item of ['a1', 'a2']) lanes.add('a', item);
    lanes.resume();
    lanes.hold(laneOf('a'));
    await end('a1');
    may.start = false;
    for (const item of ['b1', 'b2']) lanes.add('b', item);
    expect(lanes.remove((item) => item !== 'b2')).toEqual(['a2', 'b1']);
    let isIdle = false;
    void lanes.idle().then(() => (isIdle = true));
    expect(lanes.remove(() => true)).toEqual(['b2']);
    await settled();
    expect(isIdle).toBe(false);
    lanes.letGo(laneOf('a'));
    await settled();
    expect(isIdle).toBe(true);
  });

  test('do one item at a time, also when all that waited in one was removed before', async () => {
    const { lanes, started, end } = lanesOf(2);
    lanes.add('a', 'a1');
    lanes.add('b', 'b1');
    lanes.add('c', 'off');
    lanes.resume();
    lanes.remove((item) => item === 'off');
    lanes.add('c', 'c1');
    await end('a1');
    await end('b1');
    expect(started).toEqual(['a1', 'b1', 'c1']);
    lanes.add('c', 'c2');
    lanes.resume();
    expect(started).toEqual(['a1', 'b1', 'c1']);
    await end('c1');
    expect(started.at(-1)).toBe('c2');
  });

  test('are not idle when what waits behind a step is removed, until the step has ended', async () => {
    const { lanes, end } = lanesOf(1);
    for (const item of ['a1', 'a2']) lanes.add('a', item);
    lanes.resume();
    let isIdle = false;
    void lanes.idle().then(() => (isIdle = true));
    expect(lanes.remove(() => true)).toEqual(['a2']);
    await settled();
    expect(isIdle).toBe(false);
    await end('a1');
    expect(isIdle).toBe(true);
  });
});
