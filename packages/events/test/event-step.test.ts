import { expect, test } from 'vitest';

import { defaultDeliverySettings } from '../src/index.js';
import { HeldSlot } from '../src/slots/lease-keeper.js';
import { EventStep } from '../src/subscription/event-step.js';
import type { EventWork } from '../src/subscription/event-work.js';
import { ParkedModelSet } from '../src/subscription/keyed-queue.js';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

type StepOptions = ConstructorParameters<typeof EventStep>[0];

/** The step of a batch handler; `called` and `parked` hold what it was called with, and what was parked. */
function stepOf(
  outcome: 'done' | 'failed',
  { batches = true, isLost = false, models = new ParkedModelSet() } = {},
): {
  readonly step: EventStep;
  readonly called: string[];
  readonly parked: (readonly [string, number])[];
} {
  const called: string[] = [];
  const parked: (readonly [string, number])[] = [];
  const options = {
    context: workerContext({ settings: { ...defaultDeliverySettings, parkMax: 500, batchBytesMax: 1_000 } }),
    handler: 'one',
    policy: {
      batches,
      batchMax: batches ? 10 : 1,
      waitsWhenFailed: false,
      concurrency: 1,
      timeoutMs: 1,
      retry: defaultDeliverySettings.retry,
    },
    caller: {
      handler: 'one',
      call: async (events: readonly { readonly id: string }[]) => {
        called.push(...events.map(({ id }) => id));
        return outcome === 'done' ? { kind: 'done' } : { kind: 'failed', error: new Error('no') };
      },
    },
    parker: {
      park: async (
        _slot: HeldSlot,
        events: readonly { readonly event: { readonly id: string }; readonly attempts: number }[],
      ) => {
        parked.push(...events.map(({ event, attempts }) => [event.id, attempts] as const));
        return !isLost;
      },
    },
    parked: models,
    onParked: () => undefined,
  } as unknown as StepOptions;
  return { step: new EventStep(options), called, parked };
}

function slotWith(token: string): HeldSlot {
  return new HeldSlot({ handler: 'one', slot: 0, token, abandoned: false });
}

function work(version: number, slot: HeldSlot, finished: string[] = []): EventWork {
  const event = deposited('a', version);
  return { kind: 'event', event, slot, onFinished: () => finished.push(event.id) };
}

test('events of a lease that was lost are sorted out of a batch that begins with them', async () => {
  const { step, called } = stepOf('done');
  const finished: string[] = [];
  const old = slotWith('1');
  old.lose();
  await step.run([work(1, old, finished), work(2, slotWith('2'), finished)], 1);
  expect([called, finished]).toEqual([['a2'], ['a2']]);
});

/** The models of which events are parked: only that of {@link work}. */
function oneParked(): ParkedModelSet {
  const models = new ParkedModelSet();
  models.add(0, 'Account a');
  return models;
}

test('what another process has when the events behind parked ones are parked is left to it', async () => {
  const { step, called, parked } = stepOf('done', { isLost: true, models: oneParked() });
  const slot = slotWith('1');
  const finished: string[] = [];
  const other = { ...work(1, slot, finished), event: deposited('e', 1) };
  await step.run([work(2, slot, finished), other], 1);
  expect([parked, called, finished]).toEqual([[['a2', 0]], [], []]);
});

test.each([
  ['one after the other', false, { count: 1, bytes: 1_000 }, { count: 500, bytes: Infinity }],
  // Others of the slot may be handled.
  ['in batches', true, { count: 10, bytes: 1_000 }, { count: 10, bytes: 1_000 }],
])(
  'events of a model that are handled %s belong together as they are handled, and behind a parked one as they are parked',
  (_how, batches, handled, parked) => {
    const first = work(1, slotWith('1'));
    expect(stepOf('done', { batches }).step.takeMax(first)).toEqual(handled);
    expect(stepOf('done', { batches, models: oneParked() }).step.takeMax(first)).toEqual(parked);
  },
);

test('later events of a model count no attempt when their batch fails: they only waited', async () => {
  const { step, parked } = stepOf('failed');
  const slot = slotWith('1');
  await step.run([work(1, slot), work(2, slot), work(3, slot)], 1);
  expect(parked).toEqual([
    ['a1', 1],
    ['a2', 0],
    ['a3', 0],
  ]);
});

test('only as many events are suspects after a crash as the process before can have had', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one' }, () => new Promise(() => undefined));
  bench.database.commit(...Array.from({ length: 100 }, (_item, index) => deposited('a', index + 1)));
  const { access } = bench.start([handler], { readMax: 2, unsavedMax: 4 });
  await bench.clock.advance(300);
  access.kill();
  bench.start([handler], { readMax: 2, unsavedMax: 4 });
  await bench.clock.advance(15_000);
  const suspects = bench.database.parkedOf('one').filter(({ suspect }) => suspect);
  expect(suspects.length).toBeGreaterThan(0);
  expect(suspects.length).toBeLessThanOrEqual(4 + 2 * 2 + 2);
});
