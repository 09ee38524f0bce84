import { expect, test } from 'vitest';

import { HeldSlot } from '../src/slots/held-slot.js';
import { EventStep } from '../src/subscription/event-step.js';
import { BlockedModelSet, type EventWork } from '../src/subscription/keyed-queue.js';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';
import { testSettings, workerContext } from './worker-context.js';

type StepOptions = ConstructorParameters<typeof EventStep>[0];

/** The step of a handler; `called` and `blocked` contain what it was called with, and what was blocked. */
function stepOf(
  outcome: 'done' | 'failed',
  { batches = true, isLost = false, models = new BlockedModelSet() } = {},
): {
  readonly step: EventStep;
  readonly called: string[];
  readonly blocked: (readonly [string, number])[];
} {
  const called: string[] = [];
  const blocked: (readonly [string, number])[] = [];
  const options = {
    context: workerContext({ settings: testSettings({ blockMax: 500, batchBytesMax: 1_000 }) }),
    handler: 'one',
    policy: {
      batches,
      batchMax: batches ? 10 : 1,
      waitsWhenFailed: false,
      concurrency: 1,
      timeoutMs: 1,
      retry: { attemptsMax: 10, backoffBaseMs: 500, backoffMaxMs: 300_000, outageBackoffMaxMs: 5_000 },
    },
    caller: {
      handler: 'one',
      call: async (events: readonly { readonly id: string }[]) => {
        called.push(...events.map(({ id }) => id));
        return outcome === 'done' ? { kind: 'done' } : { kind: 'failed', error: new Error('no') };
      },
    },
    blocker: {
      block: async (
        _slot: HeldSlot,
        events: readonly { readonly event: { readonly id: string }; readonly attempts: number }[],
      ) => {
        blocked.push(...events.map(({ event, attempts }) => [event.id, attempts] as const));
        return !isLost;
      },
    },
    blocked: models,
    onBlocked: () => undefined,
  } as unknown as StepOptions;
  return { step: new EventStep(options), called, blocked };
}

function slotWith(token: string): HeldSlot {
  return new HeldSlot({ handler: 'one', slot: 0, token, abandoned: false });
}

function work(version: number, slot: HeldSlot, finished: string[] = []): EventWork {
  const event = deposited('a', version);
  return { kind: 'event', event, slot, onFinished: () => finished.push(event.id) };
}

test('events of a lost lease are removed from a batch that begins with them', async () => {
  const { step, called } = stepOf('done');
  const finished: string[] = [];
  const old = slotWith('1');
  old.lose();
  await step.run([work(1, old, finished), work(2, slotWith('2'), finished)], 1);
  expect([called, finished]).toEqual([['a2'], ['a2']]);
});

/** The models with blocked events: only that of {@link work}. */
function oneBlocked(): BlockedModelSet {
  const models = new BlockedModelSet();
  models.add(0, 'Account\0a');
  return models;
}

test('events behind blocked ones are left to another process if it has taken over their slot', async () => {
  const { step, called, blocked } = stepOf('done', { isLost: true, models: oneBlocked() });
  const slot = slotWith('1');
  const finished: string[] = [];
  const other = { ...work(1, slot, finished), event: deposited('e', 1) };
  await step.run([work(2, slot, finished), other], 1);
  expect([blocked, called, finished]).toEqual([[['a2', 0]], [], []]);
});

test.each([
  ['one after the other', false, { count: 1, bytes: 1_000 }, { count: 500, bytes: Infinity }],
  // Other events of the slot may be handled.
  ['in batches', true, { count: 10, bytes: 1_000 }, { count: 10, bytes: 1_000 }],
])(
  'events of a model that are handled %s are handled together, and blocked together behind a blocked one',
  (_how, batches, handled, blocked) => {
    const first = work(1, slotWith('1'));
    expect(stepOf('done', { batches }).step.takeMax(first)).toEqual(handled);
    expect(stepOf('done', { batches, models: oneBlocked() }).step.takeMax(first)).toEqual(blocked);
  },
);

test('later events of a model have no attempt counted when their batch fails, because they only waited', async () => {
  const { step, blocked } = stepOf('failed');
  const slot = slotWith('1');
  await step.run([work(1, slot), work(2, slot), work(3, slot)], 1);
  expect(blocked).toEqual([
    ['a1', 1],
    ['a2', 0],
    ['a3', 0],
  ]);
});

test('only as many events are suspects after a crash as the previous process may have read', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one' }, () => new Promise(() => undefined));
  bench.database.commit(...Array.from({ length: 100 }, (_item, index) => deposited('a', index + 1)));
  const { access } = bench.start([handler], { readMax: 2, unsavedMax: 4 });
  await bench.clock.advance(300);
  access.kill();
  bench.start([handler], { readMax: 2, unsavedMax: 4 });
  await bench.clock.advance(15_000);
  const suspects = bench.database.blockedOf('one').filter(({ suspect }) => suspect);
  expect(suspects.length).toBeGreaterThan(0);
  expect(suspects.length).toBeLessThanOrEqual(4 + 2 * 2 + 2);
});
