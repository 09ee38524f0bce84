import { expect, test } from 'vitest';
import { defaultDeliverySettings } from '../src/index.js';
import { EventStep } from '../src/flow/event-step.js';
import type { EventWork } from '../src/flow/flow-work.js';
import { ParkedModelSet } from '../src/flow/parked-model-set.js';
import { HeldSlot } from '../src/lease/held-slot.js';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

type StepOptions = ConstructorParameters<typeof EventStep>[0];

/** The step of a batch handler; `called` and `parked` hold what it was called with, and what was parked. */
function stepOf(outcome: 'done' | 'failed'): {
  readonly step: EventStep;
  readonly called: string[];
  readonly parked: (readonly [string, number])[];
} {
  const called: string[] = [];
  const parked: (readonly [string, number])[] = [];
  const options = {
    context: workerContext(),
    handler: 'one',
    policy: {
      batches: true,
      batchMax: 10,
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
        return true;
      },
    },
    parked: new ParkedModelSet(),
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
