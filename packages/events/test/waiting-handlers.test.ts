import { InvariantViolationError } from '@framework/core';
import { describe, expect, test } from 'vitest';
import { type BatchEventHandler, FrameworkEventHandler } from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { type BenchProcess, DeliveryBench, gate } from './delivery-bench.js';

/** Processes that publish to one broker, and wait while it is down. */
class PublishingBench extends DeliveryBench {
  readonly published: string[] = [];
  brokerError: unknown = new Error('the broker is down');
  /** The event that ends the process handling it. */
  killer: string | undefined;

  publish(): BenchProcess {
    const attempt = (process: () => BenchProcess, ids: readonly string[]): Promise<void> => {
      if (process().access.dead) return new Promise(() => undefined);
      if (this.killer !== undefined && ids.includes(this.killer)) {
        process().access.kill();
        return new Promise(() => undefined);
      }
      if (this.brokerError !== undefined) return Promise.reject(this.brokerError);
      this.published.push(...ids);
      return Promise.resolve();
    };
    class Publish {
      readonly event = DepositedEvent;
      handleBatch(envelopes: readonly { readonly eventId: string }[]): Promise<void> {
        return attempt(
          () => started,
          envelopes.map(({ eventId }) => eventId),
        );
      }
    }
    const retry = { attemptsMax: 3 };
    FrameworkEventHandler({ name: 'publish', startFrom: 'beginning', whenBatchFails: 'wait', retry })(
      Publish,
    );
    const started: BenchProcess = this.start([new Publish()]);
    return started;
  }
}

describe('a handler that waits when its batches fail', () => {
  test.each([
    ['an error of its own', new Error('the broker is down')],
    ['an error that says it cannot succeed', new InvariantViolationError('the broker has no such topic')],
  ])('makes no dead letters when its process dies while it waits after %s', async (_what, brokerError) => {
    const bench = new PublishingBench();
    bench.brokerError = brokerError;
    const models = ['a', 'b', 'c', 'd', 'e'];
    for (let version = 1; version <= 3; version++) {
      bench.database.commit(...models.map((model) => deposited(model, version)));
    }
    const first = bench.publish();
    await bench.clock.advance(2_000);
    first.access.kill();
    const { failures } = bench.publish();
    await bench.clock.advance(1_800_000);
    expect(failures.length).toBeGreaterThan(100);
    expect(failures.filter(({ counted, willRetry }) => counted || !willRetry)).toEqual([]);
    expect(bench.database.blockedOf('publish').filter(({ dead }) => dead)).toEqual([]);
    bench.brokerError = undefined;
    await bench.clock.advance(60_000);
    for (const model of models) {
      expect(bench.published.filter((id) => id.startsWith(model))).toEqual([1, 2, 3].map((n) => model + n));
    }
    expect(bench.database.blocked.size).toBe(0);
  });

  test('loses no event of a batch that fails while another event is blocked', async () => {
    const bench = new PublishingBench();
    bench.database.commit(deposited('a', 1));
    const first = bench.publish();
    await bench.clock.advance(2_000);
    first.access.kill();
    const second = bench.publish();
    await bench.clock.advance(30_000);
    expect(bench.database.blockedOf('publish')).toMatchObject([{ event: { id: 'a1' } }]);
    bench.database.commit(deposited('a', 2), deposited('e', 1), deposited('e', 2));
    await bench.clock.advance(120_000);
    expect(bench.database.cursors.get('publish 0')).toBe(1);
    second.access.kill();
    bench.brokerError = undefined;
    bench.publish();
    await bench.clock.advance(60_000);
    expect(bench.published.toSorted()).toEqual(['a1', 'a2', 'e1', 'e2']);
  });

  test.each([
    ['were read already', 0],
    ['are read during it', 3_000],
  ])('is not called after a failure during a stop, even for events that %s', async (_what, readMs) => {
    const bench = new DeliveryBench();
    const called: string[] = [];
    const hold = gate();
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const { access, executor, delivery } = bench.start(
      [
        batchHandler(async (ids) => {
          called.push(...ids);
          // A call for another slot delays the end of the process for as long as allowed.
          if (ids.includes('b1')) await bench.clock.sleep(10_000);
          await hold.opened;
          if (ids.includes('a1')) throw new Error('the broker is down');
        }),
      ],
      { batchMax: 1 },
    );
    await bench.clock.advance(2_000);
    access.delays.set('log.read', [bench.clock.sleep(readMs)]);
    bench.database.commit(deposited('a', 2));
    executor.committed();
    await bench.clock.advance(1_000);
    const stopped = delivery.stop();
    hold.open();
    await bench.clock.advance(20_000);
    await stopped;
    expect(called).toEqual(['a1', 'b1']);
    bench.start([batchHandler(async (ids) => void called.push(...ids))], { batchMax: 1 });
    await bench.clock.advance(2_000);
    expect(called).toEqual(['a1', 'b1', 'a1', 'a2']);
  });

  test('still turns an event that kills its process into a dead letter', async () => {
    const bench = new PublishingBench();
    bench.brokerError = undefined;
    bench.killer = 'a1';
    bench.database.commit(...['a', 'b', 'c'].map((model) => deposited(model, 1)));
    for (let life = 0; life < 6; life++) {
      bench.publish();
      await bench.clock.advance(20_000);
    }
    expect(bench.database.blockedOf('publish')).toMatchObject([
      { event: { id: 'a1' }, attempts: 3, dead: true },
    ]);
    expect(bench.published).toEqual(expect.arrayContaining(['b1', 'c1']));
  });
});

/** A handler that waits when its batches fail; its work gets the ids of a batch. */
function batchHandler(work: (ids: readonly string[]) => Promise<void>): BatchEventHandler<DepositedEvent> {
  class Batches implements BatchEventHandler<DepositedEvent> {
    readonly event = DepositedEvent;
    handleBatch(envelopes: readonly { readonly eventId: string }[]): Promise<void> {
      return work(envelopes.map(({ eventId }) => eventId));
    }
  }
  FrameworkEventHandler({ name: 'batches', startFrom: 'beginning', whenBatchFails: 'wait' })(Batches);
  return new Batches();
}
