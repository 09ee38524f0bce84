import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { AbandonedCalls } from '../src/call/call-deadlines.js';
import { EventHandlerRegistry } from '../src/handler/event-handler-registry.js';
import { EnvelopeFactory } from '../src/handler/row-envelope.js';
import { type EventEnvelope, FrameworkEventHandler } from '../src/index.js';
import { HeldSlot } from '../src/slots/held-slot.js';
import { type SubscriptionDependencies, EventDispatch } from '../src/subscription/event-dispatch.js';
import { BlockedModelSet, type KeyedQueue, KeyedQueues } from '../src/subscription/keyed-queue.js';
import { DepositedEvent, deposited } from './account.js';
import { gate, shard } from './delivery-bench.js';
import { testSettings, workerContext } from './worker-context.js';

test('a queue with more items than a call can have arguments loses only those that are removed', () => {
  const count = 150_000;
  const queues = new KeyedQueues<string>({
    concurrency: 1,
    mayStart: () => false,
    step: () => Promise.resolve(),
    onError: () => undefined,
  });
  for (let index = 0; index < count; index++) {
    queues.add('slot', 'event');
    queues.add('slot', 'retry');
  }
  expect(queues.remove((item) => item === 'retry')).toHaveLength(count);
  expect(new Set(queues.remove(() => true))).toEqual(new Set(['event']));
});

test('a batch with more events than a call can have arguments is retried as a whole', async () => {
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
  const around: Partial<SubscriptionDependencies> = {
    context: workerContext({ clock, settings }),
    envelopes: new EnvelopeFactory([shard], []),
    abandoned: new AbandonedCalls({ max: 1, forMs: 1, clock, onRestartNeeded: () => undefined }),
  };
  const dispatch = new EventDispatch({
    handler: { ...handler!, id: 'one' },
    around: around as SubscriptionDependencies,
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

/** KeyedQueues whose steps take one item each, which a test ends by its name. */
function queuesOf(concurrency: number) {
  const started: string[] = [];
  const errors: unknown[] = [];
  const ends = new Map<string, () => void>();
  const may = { start: true };
  const queueOf = new Map<string, KeyedQueue<string>>();
  const queues = new KeyedQueues<string>({
    concurrency,
    mayStart: () => may.start,
    step: async (queue) => {
      const item = queue.items.shift()!;
      queueOf.set(queue.key, queue);
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
  return { queues, started, errors, may, end, queueOf: (key: string) => queueOf.get(key)! };
}

/** Lets everything continue that has nothing left to wait for. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

describe('queues', () => {
  test('run in parallel up to a limit, each of them one item at a time, and take turns', async () => {
    const { queues, started, end } = queuesOf(2);
    for (const key of ['a', 'b', 'c']) for (const number of [1, 2]) queues.add(key, `${key}${number}`);
    expect(started).toEqual([]);
    queues.resume();
    expect(started).toEqual(['a1', 'b1']);
    await end('a1');
    expect(started).toEqual(['a1', 'b1', 'c1']);
    await end('b1');
    await end('c1');
    expect(started).toEqual(['a1', 'b1', 'c1', 'a2', 'b2']);
    await end('a2', 'b2');
    expect(started).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'c2']);
  });

  test('continue after an item that failed, which is reported', async () => {
    const { queues, started, errors, end } = queuesOf(1);
    queues.add('a', 'bad');
    queues.add('a', 'good');
    queues.resume();
    await end('bad');
    expect(errors).toMatchObject([{ message: 'bad' }]);
    expect(started).toEqual(['bad', 'good']);
  });

  test('start an item that is added to the front before waiting ones, but only when the current step has ended', async () => {
    const { queues, started, end } = queuesOf(2);
    queues.add('a', 'second');
    queues.addFirst('a', 'first');
    expect(started).toEqual(['first']);
    queues.addFirst('a', 'next');
    expect(started).toEqual(['first']);
    await end('first');
    await end('next');
    expect(started).toEqual(['first', 'next', 'second']);
  });

  test('start nothing while no step may start', async () => {
    const { queues, started, may, end } = queuesOf(2);
    may.start = false;
    queues.addFirst('a', 'a1');
    queues.add('a', 'a2');
    expect(started).toEqual([]);
    may.start = true;
    queues.resume();
    expect(started).toEqual(['a1']);
    may.start = false;
    await end('a1');
    expect(started).toEqual(['a1']);
  });

  test('use the capacity of another one for as long as it is held back', async () => {
    const { queues, started, end, queueOf } = queuesOf(1);
    for (const item of ['a1', 'a2']) queues.add('a', item);
    for (const item of ['b1', 'b2']) queues.add('b', item);
    queues.resume();
    queues.hold(queueOf('a'));
    await end('a1');
    queues.add('a', 'a3');
    queues.addFirst('a', 'a0');
    await end('b1');
    await end('b2');
    expect(started).toEqual(['a1', 'b1', 'b2']);
    queues.letGo(queueOf('a'));
    expect(started).toEqual(['a1', 'b1', 'b2', 'a0']);
    await end('a0');
    expect(started.at(-1)).toBe('a2');
  });

  test('run one item at a time, even of a queue that is released before its step has ended', async () => {
    const { queues, started, end, queueOf } = queuesOf(2);
    for (const item of ['a1', 'a2', 'a3']) queues.add('a', item);
    queues.resume();
    queues.hold(queueOf('a'));
    queues.letGo(queueOf('a'));
    queues.resume();
    expect(started).toEqual(['a1']);
    await end('a1');
    expect(started).toEqual(['a1', 'a2']);
  });

  test('are idle at once without work, otherwise when all of it has ended', async () => {
    const { queues, end } = queuesOf(2);
    await queues.idle();
    const told: string[] = [];
    for (const item of ['a1', 'a2']) queues.add('a', item);
    queues.add('b', 'b1');
    queues.resume();
    void queues.idle().then(() => told.push('one'));
    void queues.idle().then(() => told.push('other'));
    await end('a1', 'b1');
    expect(told).toEqual([]);
    await end('a2');
    expect(told).toEqual(['one', 'other']);
  });

  test('are idle when all waiting items are removed and one that was held back is released', async () => {
    const { queues, end, queueOf, may } = queuesOf(2);
    for (const item of ['a1', 'a2']) queues.add('a', item);
    queues.resume();
    queues.hold(queueOf('a'));
    await end('a1');
    may.start = false;
    for (const item of ['b1', 'b2']) queues.add('b', item);
    expect(queues.remove((item) => item !== 'b2')).toEqual(['a2', 'b1']);
    let isIdle = false;
    void queues.idle().then(() => (isIdle = true));
    expect(queues.remove(() => true)).toEqual(['b2']);
    await settled();
    expect(isIdle).toBe(false);
    queues.letGo(queueOf('a'));
    await settled();
    expect(isIdle).toBe(true);
  });

  test('run one item at a time, even of a queue whose waiting items were all removed before', async () => {
    const { queues, started, end } = queuesOf(2);
    queues.add('a', 'a1');
    queues.add('b', 'b1');
    queues.add('c', 'off');
    queues.resume();
    queues.remove((item) => item === 'off');
    queues.add('c', 'c1');
    await end('a1');
    await end('b1');
    expect(started).toEqual(['a1', 'b1', 'c1']);
    queues.add('c', 'c2');
    queues.resume();
    expect(started).toEqual(['a1', 'b1', 'c1']);
    await end('c1');
    expect(started.at(-1)).toBe('c2');
  });

  test('are not idle when items behind a step are removed, until the step has ended', async () => {
    const { queues, end } = queuesOf(1);
    for (const item of ['a1', 'a2']) queues.add('a', item);
    queues.resume();
    let isIdle = false;
    void queues.idle().then(() => (isIdle = true));
    expect(queues.remove(() => true)).toEqual(['a2']);
    await settled();
    expect(isIdle).toBe(false);
    await end('a1');
    expect(isIdle).toBe(true);
  });
});
