import type { DeliverableEvent } from '@framework/core/adapter';
import { UnknownActionError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import {
  type BatchEventHandler,
  type EventEnvelope,
  type EventHandlerOptions,
  FrameworkEventHandler,
  PartialBatchError,
} from '../src/index.js';
import { deposited } from './account.js';
import { DeliveryBench, operatorOf } from './delivery-bench.js';

/** A batch handler of all events; `faults` contains the errors of events that fail, by their ids, until a test deletes them. */
function partialHandler(options: EventHandlerOptions = {}): BatchEventHandler<undefined> & {
  readonly batches: string[][];
  readonly faults: Map<string, unknown>;
} {
  class PartialHandler implements BatchEventHandler<undefined> {
    readonly event = 'all';
    readonly batches: string[][] = [];
    readonly faults = new Map<string, unknown>();

    async handleBatch(envelopes: readonly EventEnvelope<undefined>[]): Promise<void> {
      this.batches.push(envelopes.map(({ eventId }) => eventId));
      const failed = envelopes.filter(({ eventId }) => this.faults.has(eventId));
      if (failed.length === 0) return;
      const failures = failed.map(({ eventId }) => ({ eventId, error: this.faults.get(eventId) }));
      throw new PartialBatchError(failures);
    }
  }
  FrameworkEventHandler({ name: 'publish', startFrom: 'beginning', ...options })(PartialHandler);
  return new PartialHandler();
}

/** The models `a`, `e` and `i` are all in slot 0; each event of the batch comes once. */
const batch: readonly DeliverableEvent[] = [
  deposited('a', 1),
  deposited('e', 1),
  deposited('a', 2),
  deposited('e', 2),
  deposited('i', 1),
];

describe('a batch that fails in part', () => {
  test('is done except for the failed events, and for later events of their models', async () => {
    const bench = new DeliveryBench();
    const handler = partialHandler();
    handler.faults.set('e1', new Error('too large'));
    bench.database.commit(...batch);
    const { failures } = bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.batches).toEqual([['a1', 'e1', 'a2', 'e2', 'i1']]);
    expect(bench.database.blockedOf('publish')).toMatchObject([
      { event: { id: 'e1' }, attempts: 1, error: 'Error: too large' },
      { event: { id: 'e2' }, attempts: 0 },
    ]);
    expect(failures).toMatchObject([{ event: { id: 'e1' }, eventCount: 1, attempt: 1, counted: true }]);
    handler.faults.clear();
    await bench.clock.advance(30_000);
    expect(handler.batches.slice(1)).toEqual([['e1'], ['e2']]);
    expect(bench.database.blockedOf('publish')).toEqual([]);
  });

  test('blocks each model with a failed event, with the error of the first one', async () => {
    const bench = new DeliveryBench();
    const handler = partialHandler();
    handler.faults
      .set('a2', new Error('second'))
      .set('e1', new Error('first'))
      .set('e2', new Error('hidden'));
    bench.database.commit(...batch);
    const { failures } = bench.start([handler]);
    await bench.clock.advance(300);
    expect(
      bench.database.blockedOf('publish').map(({ event, error }) => `${event.id} ${error ?? 'waits'}`),
    ).toEqual(['e1 Error: first', 'a2 Error: second', 'e2 waits']);
    expect(failures.map(({ event }) => event.id)).toEqual(['e1', 'a2']);
  });

  test('makes a dead letter at once of an event that cannot succeed, even if batches wait', async () => {
    const bench = new DeliveryBench();
    const handler = partialHandler({ whenBatchFails: 'wait' });
    handler.faults.set('e1', new UnknownActionError('Nothing'));
    bench.database.commit(...batch);
    const { failures } = bench.start([handler]);
    await bench.clock.advance(60_000);
    expect(handler.batches).toEqual([['a1', 'e1', 'a2', 'e2', 'i1']]);
    expect(bench.database.blockedOf('publish')).toMatchObject([
      { event: { id: 'e1' }, dead: true },
      { event: { id: 'e2' }, dead: false },
    ]);
    expect(failures).toMatchObject([{ event: { id: 'e1' }, counted: true, willRetry: false }]);
    bench.database.commit(deposited('a', 3), deposited('e', 3));
    await bench.clock.advance(2_000);
    expect(handler.batches.slice(1)).toEqual([['a3']]);
    handler.faults.clear();
    await operatorOf(bench).replay({ handler: 'publish' });
    await bench.clock.advance(5_000);
    expect(handler.batches.slice(2)).toEqual([['e1'], ['e2'], ['e3']]);
  });

  test('counts the attempts of an event that fails again, even if batches wait', async () => {
    const bench = new DeliveryBench();
    const handler = partialHandler({ whenBatchFails: 'wait', retry: { attemptsMax: 3 } });
    handler.faults.set('e1', new Error('no route'));
    bench.database.commit(...batch);
    const { failures } = bench.start([handler]);
    await bench.clock.advance(60_000);
    expect(handler.batches.slice(1)).toEqual([['e1'], ['e1']]);
    expect(failures.map(({ attempt, willRetry }) => [attempt, willRetry])).toEqual([
      [1, true],
      [2, true],
      [3, false],
    ]);
    expect(bench.database.blockedOf('publish')[0]).toMatchObject({ dead: true, error: 'Error: no route' });
  });

  test.each([
    ['no event', []],
    ['an event that is not in the batch', [{ eventId: 'z9', error: new Error('no') }]],
    ['nothing, against its declaration', [undefined as never]],
  ])('has failed as a whole if it names %s', async (_what, named) => {
    const bench = new DeliveryBench();
    class Wrong implements BatchEventHandler<undefined> {
      static readonly handlerName = 'publish';
      static readonly options: EventHandlerOptions = { startFrom: 'beginning' };
      readonly event = 'all';

      handleBatch(): Promise<void> {
        return Promise.reject(new PartialBatchError(named));
      }
    }
    bench.database.commit(...batch);
    bench.start([new Wrong()]);
    await bench.clock.advance(300);
    const ids = bench.database.blockedOf('publish').map(({ event }) => event.id);
    expect(ids.toSorted()).toEqual(batch.map(({ id }) => id).toSorted());
  });
});
