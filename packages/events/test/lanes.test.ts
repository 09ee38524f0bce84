import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';
import { AbandonedCalls } from '../src/call/abandoned-calls.js';
import { defaultDeliverySettings } from '../src/delivery-settings.js';
import { FlowDispatch } from '../src/flow/flow-dispatch.js';
import type { FlowSurroundings } from '../src/flow/flow-surroundings.js';
import { Lanes } from '../src/flow/lanes.js';
import { ParkedModelSet } from '../src/flow/parked-model-set.js';
import { EnvelopeFactory } from '../src/handler/envelope-factory.js';
import { EventHandlerRegistry } from '../src/handler/event-handler-registry.js';
import { type EventEnvelope, FrameworkEventHandler } from '../src/index.js';
import { HeldSlot } from '../src/lease/held-slot.js';
import { DepositedEvent, deposited } from './account.js';
import { shard } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

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
  const settings = { ...defaultDeliverySettings, batchBytesMax: 2 ** 30 };
  const around: Partial<FlowSurroundings> = {
    context: workerContext({ clock, settings }),
    envelopes: new EnvelopeFactory([shard], []),
    abandoned: new AbandonedCalls({ max: 1, forMs: 1, clock, onRestartNeeded: () => undefined }),
  };
  const dispatch = new FlowDispatch({
    handler: { ...handler!, id: 'one' },
    around: around as FlowSurroundings,
    parked: new ParkedModelSet(),
    onRoom: () => undefined,
  });
  const event = deposited('a', 1);
  const slot = new HeldSlot({ handler: 'one', slot: 0, token: 'token', abandoned: false });
  let finishedCount = 0;
  dispatch.handle(Array<typeof event>(count).fill(event), slot, () => finishedCount++);
  await clock.advance(10_000);
  expect([sizes, finishedCount]).toEqual([[count, count], count]);
});
