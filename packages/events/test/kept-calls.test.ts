import { expect, test } from 'vitest';

import { keptInMemory } from '../../core/test/kept-in-memory.js';
import {
  type BatchEventHandler,
  type EventEnvelope,
  type HandlerContext,
  PartialBatchError,
} from '../src/index.js';
import { type DepositedEvent, deposited } from './account.js';
import { batchHandlerOf } from './bench-store.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';

const rounds = 40;
const modelsOfRound = 10;

/** Delivers events at a steady rate, and tells how much of what the handlers were given is still in memory when all are done. */
async function keptAfter(
  outcomeOf: (eventId: string) => Promise<void> | void,
  kinds: 'single' | 'batch' = 'single',
): Promise<{ readonly given: number; readonly kept: number }> {
  const bench = new DeliveryBench();
  const given: WeakRef<object>[] = [];
  const note = (context: HandlerContext, ...envelopes: readonly EventEnvelope<DepositedEvent>[]): void => {
    given.push(
      new WeakRef(context),
      new WeakRef(context.signal),
      ...envelopes.map((each) => new WeakRef(each)),
    );
  };
  // What is kept until the time of a call is over would be seen.
  const options = { name: 'one', timeoutMs: 2 ** 30, retry: { backoffBaseMs: 10, backoffMaxMs: 20 } };
  const single = handlerOf(options, async (envelope, context) => {
    note(context, envelope);
    await bench.clock.sleep(5);
    await outcomeOf(envelope.eventId);
  });
  const batch: BatchEventHandler<DepositedEvent> = batchHandlerOf(options);
  batch.handleBatch = async (envelopes, context) => {
    note(context, ...envelopes);
    await bench.clock.sleep(5);
    for (const { eventId } of envelopes) await outcomeOf(eventId);
  };
  const { executor } = bench.start([kinds === 'single' ? single : batch], { cursorSaveMs: 50 });
  for (let round = 0; round < rounds; round++) {
    const models = Array.from(
      { length: modelsOfRound },
      (_unused, index) => `${'abcd'.charAt(index % 4)}-${round}-${index}`,
    );
    bench.database.commit(...models.map((model) => deposited(model, 1)));
    executor.committed();
    await bench.clock.advance(50);
  }
  await bench.clock.advance(120_000);
  return { given: given.length, kept: await keptInMemory(given) };
}

test.each(['single', 'batch'] as const)(
  'calls that have returned keep nothing in memory (%s)',
  async (kind) => {
    const { given, kept } = await keptAfter(() => undefined, kind);
    expect(given).toBeGreaterThan(rounds);
    expect(kept).toBe(0);
  },
);

test.each(['single', 'batch'] as const)(
  'calls that have failed keep nothing in memory (%s)',
  async (kind) => {
    let calls = 0;
    const { kept } = await keptAfter((id) => {
      if (calls++ % 2 === 1) return;
      if (kind === 'batch') throw new PartialBatchError([{ eventId: id, error: new Error('now and then') }]);
      throw new Error('now and then');
    }, kind);
    expect(calls).toBeGreaterThan(rounds * modelsOfRound);
    expect(kept).toBe(0);
  },
);
