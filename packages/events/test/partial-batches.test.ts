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
import { DeliveryBench, operatorOf, shard } from './delivery-bench.js';

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
  test('is done except for the failed events, even behind these', async () => {
    const bench = new DeliveryBench();
    const handler = partialHandler();
    handler.faults.set('e1', new Error('too large'));
    bench.database.commit(...batch);
    const { failures } = bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.batches).toEqual([['a1', 'e1', 'a2', 'e2', 'i1']]);
    expect(bench.database.blockedOf('publish')).toMatchObject([
      { event: { id: 'e1' }, attempts: 1, error: 'Error: too large', doneIds: ['e2'] },
    ]);
    expect(failures).toMatchObject([{ event: { id: 'e1' }, eventCount: 1, attempt: 1, counted: true }]);
    handler.faults.clear();
    await bench.clock.advance(30_000);
    expect(handler.batches.slice(1)).toEqual([['e1']]);
    expect(bench.database.blockedOf('publish')).toEqual([]);
  });

  test('is never repeated for what is done, even if a second event before that fails again', async () => {
    const bench = new DeliveryBench();
    const handler = partialHandler();
    handler.faults.set('a1', new Error('no')).set('a2', new Error('no'));
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('a', 3));
    const { store } = bench.start([handler]);
    await bench.clock.advance(2_500);
    expect(await store.blocked.mayComeAgain([{ handler: 'publish', eventId: 'a3', shard }])).toEqual([]);
    expect(await operatorOf(bench).explain('a3')).toMatchObject({ standings: [{ kind: 'passed' }] });
    handler.faults.delete('a1');
    await bench.clock.advance(20_000);
    handler.faults.clear();
    await bench.clock.advance(60_000);
    expect(bench.database.blockedOf('publish')).toEqual([]);
    expect(handler.batches.flat().filter((id) => id === 'a3')).toHaveLength(1);
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
    expect(bench.database.blockedOf('publish')).toMatchObject([
      { event: { id: 'a2' }, error: 'Error: second' },
      { event: { id: 'e1' }, error: 'Error: first', doneIds: [] },
    ]);
    expect(failures.map(({ event }) => event.id).toSorted()).toEqual(['a2', 'e1']);
  });

  test('delivers events that wait without an attempt, and none again that is done', async () => {
    const bench = new DeliveryBench();
    const batches: string[][] = [];
    class Waiting implements BatchEventHandler<undefined> {
      static readonly handlerName = 'publish';
      static readonly options: EventHandlerOptions = { startFrom: 'beginning' };
      readonly event = 'all';

      async handleBatch(envelopes: readonly EventEnvelope<undefined>[]): Promise<void> {
        const ids = envelopes.map(({ eventId }) => eventId);
        batches.push(ids);
        const failures = ids
          .filter((id) => id === 'a1')
          .map((eventId) => ({ eventId, error: new Error('no') }));
        // The first time, a1 fails, a3 and e2 cannot be tried; then a3 fails once, and a4 behind it is done.
        if (batches.length === 1) throw new PartialBatchError(failures, { waiting: ['a3', 'e2'] });
        if (ids.length > 1 && ids.includes('a3') && batches.length < 6)
          throw new PartialBatchError([{ eventId: 'a3', error: new Error('once') }]);
      }
    }
    bench.database.commit(
      ...[1, 2, 3].map((version) => deposited('a', version)),
      deposited('e', 1),
      deposited('e', 2),
    );
    const { executor } = bench.start([new Waiting()]);
    await bench.clock.advance(300);
    expect(bench.database.blockedOf('publish')).toMatchObject([
      { event: { id: 'a1' }, attempts: 1, doneIds: ['a2'] },
      { event: { id: 'e2' }, attempts: 0, uncounted: 1 },
    ]);
    bench.database.commit(deposited('a', 4), deposited('a', 5));
    executor.committed();
    await bench.clock.advance(30_000);
    const seen = batches.flat();
    expect(seen.filter((id) => id === 'a2')).toHaveLength(1);
    expect(seen.filter((id) => id === 'a4')).toHaveLength(1);
    expect(seen).toEqual(expect.arrayContaining(['a3', 'a5', 'e2']));
    expect(bench.database.blocked.size).toBe(0);
  });

  test('makes a dead letter at once of an event that cannot succeed, even if batches wait', async () => {
    const bench = new DeliveryBench();
    const handler = partialHandler({ whenBatchFails: 'wait' });
    handler.faults.set('e1', new UnknownActionError('Nothing'));
    bench.database.commit(...batch);
    const { failures } = bench.start([handler]);
    await bench.clock.advance(60_000);
    expect(handler.batches).toEqual([['a1', 'e1', 'a2', 'e2', 'i1']]);
    expect(bench.database.blockedOf('publish')).toMatchObject([{ event: { id: 'e1' }, dead: true }]);
    expect(failures).toMatchObject([{ event: { id: 'e1' }, counted: true, willRetry: false }]);
    bench.database.commit(deposited('a', 3), deposited('e', 3));
    await bench.clock.advance(2_000);
    expect(handler.batches.slice(1)).toEqual([['a3']]);
    handler.faults.clear();
    await operatorOf(bench).replay({ handler: 'publish' });
    await bench.clock.advance(5_000);
    expect(handler.batches.slice(2)).toEqual([['e1'], ['e3']]);
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
    expect(bench.database.blockedOf('publish')).toMatchObject(
      ['a1', 'e1', 'i1'].map((id) => ({ event: { id }, attempts: 0 })),
    );
  });
});

test('a row remembers only done events behind its head, however many have failed before', async () => {
  const bench = new DeliveryBench();
  const handler = partialHandler({ retry: { backoffBaseMs: 100, backoffMaxMs: 100 } });
  for (let version = 1; version <= 1_000; version++) {
    bench.database.commit(deposited('a', version));
    if (version % 100 === 50) handler.faults.set(`a${version}`, new Error('for a while'));
  }
  bench.start([handler], { batchMax: 30 });
  const counts: number[] = [];
  while (handler.faults.size > 0) {
    await bench.clock.advance(1_000);
    const [row] = bench.database.blockedOf('publish');
    counts.push(row?.doneIds.length ?? 0);
    const [next] = handler.faults.keys();
    handler.faults.delete(next ?? '');
  }
  await bench.clock.advance(5_000);
  expect(Math.max(...counts)).toBeLessThan(30);
  expect(handler.batches.flat().length).toBeLessThan(1_300);
  expect(new Set(handler.batches.flat()).size).toBe(1_000);
});
