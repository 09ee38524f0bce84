import { describe, expect, test } from 'vitest';

import { type HandlerContext, PartialBatchError, defaultDeliverySettings } from '../src/index.js';
import { deposited } from './account.js';
import { batchHandlerOf } from './bench-store.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';

const { leaseMs } = defaultDeliverySettings;
const options = { name: 'publish', timeoutMs: 600_000 };
/** The models `a`, `e` and `i` are all in slot 0. */
const batch = [deposited('a', 1), deposited('e', 1), deposited('a', 2), deposited('e', 2), deposited('i', 1)];

/** Waits until the call is aborted. */
async function untilCallAborted({ signal }: HandlerContext): Promise<void> {
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
}

/** Stops a process that handles a batch, and returns what the next one gets. */
async function deliveredAfterStop(
  work: (ids: readonly string[], context: HandlerContext) => Promise<void>,
  bench = new DeliveryBench(),
) {
  const [first, second] = [batchHandlerOf(options, work), batchHandlerOf(options)];
  bench.database.commit(...batch);
  const { delivery, failures } = bench.start([first]);
  await bench.clock.advance(300);
  const stopped = delivery.stop({ timeoutMs: 1_000 });
  await bench.clock.advance(5_000);
  await stopped;
  const started = bench.start([second]);
  await bench.clock.advance(5_000);
  return {
    batches: first.batches,
    later: second.batches.flat(),
    failures: [...failures, ...started.failures],
  };
}

describe('a batch that a stop ends', () => {
  test('is delivered again except for the events that it names as done', async () => {
    const { batches, later, failures } = await deliveredAfterStop(async (_ids, context) => {
      await untilCallAborted(context);
      throw new PartialBatchError([], { done: ['a1', 'e1', 'e2'] });
    });
    expect(batches).toEqual([['a1', 'e1', 'a2', 'e2', 'i1']]);
    expect(later.toSorted()).toEqual(['a2', 'i1']);
    expect(failures).toEqual([]);
  });

  test('is over if it names every event as done', async () => {
    const bench = new DeliveryBench();
    const { later } = await deliveredAfterStop(async (ids, context) => {
      await untilCallAborted(context);
      throw new PartialBatchError([], { done: ids });
    }, bench);
    expect(later).toEqual([]);
    expect(bench.database.blockedOf('publish')).toEqual([]);
  });

  test.each<readonly [string, () => void]>([
    ['returns', () => undefined],
    [
      'throws',
      () => {
        throw new Error('ended');
      },
    ],
    [
      'names failed events only',
      () => {
        throw new PartialBatchError([{ eventId: 'a1', error: new Error('ended') }], { waiting: ['e1'] });
      },
    ],
    [
      'names events of another batch as done',
      () => {
        throw new PartialBatchError([], { done: ['x1'] });
      },
    ],
  ])('is delivered again as a whole, without an attempt, if it %s', async (_case, end) => {
    const bench = new DeliveryBench();
    const { later, failures } = await deliveredAfterStop(async (_ids, context) => {
      await untilCallAborted(context);
      end();
    }, bench);
    expect(later).toEqual(['a1', 'e1', 'a2', 'e2', 'i1']);
    expect(failures).toEqual([]);
  });

  test('begins no further call, and holds up the stop for two seconds at most', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ ...options, batchMax: 1 }, async (_ids, context) => {
      await untilCallAborted(context);
      await bench.clock.sleep(600_000);
    });
    bench.database.commit(...batch);
    const { delivery } = bench.start([handler]);
    await bench.clock.advance(300);
    let isStopped = false;
    void delivery.stop({ timeoutMs: 60_000 }).then(() => (isStopped = true));
    await bench.clock.advance(60_000);
    expect(isStopped).toBe(false);
    await bench.clock.advance(2_000);
    expect(isStopped).toBe(true);
    expect(handler.batches).toHaveLength(1);
  });
});

test('a batch whose slot is handed over is delivered elsewhere except for what it names as done', async () => {
  const bench = new DeliveryBench();
  // The models `c` and `d` are in the slots that a second process gets.
  const first = batchHandlerOf(options, async (ids, context) => {
    if (!ids.includes('c1')) return;
    await untilCallAborted(context);
    throw new PartialBatchError([], { done: ['c1'] });
  });
  const second = batchHandlerOf(options);
  bench.database.commit(deposited('c', 1), deposited('c', 2));
  bench.start([first]);
  await bench.clock.advance(300);
  bench.start([second]);
  await bench.clock.advance(4 * leaseMs);
  expect(second.batches).toEqual([['c2']]);
});

test('an event that a stop has aborted uses no attempt, even if its time is over before the call ends', async () => {
  const bench = new DeliveryBench();
  const slow = batchHandlerOf(
    { name: 'publish', timeoutMs: 11_000, retry: { attemptsMax: 1 } },
    async (_ids, context) => {
      await untilCallAborted(context);
      await bench.clock.sleep(1_000);
    },
  );
  bench.database.commit(deposited('a', 1));
  const { delivery, failures } = bench.start([slow]);
  await bench.clock.advance(500);
  const stopped = delivery.stop({ timeoutMs: 10_000 });
  await bench.clock.advance(20_000);
  await stopped;
  expect([failures, bench.database.blockedOf('publish')]).toEqual([[], []]);
});

test('what a stopped process has done of a drained model is not repeated, and the stop is in time', async () => {
  const bench = new DeliveryBench();
  let hasFailed = false;
  const first = handlerOf({ name: 'one', timeoutMs: 600_000 }, async ({ eventId }, { signal }) => {
    if (!hasFailed) {
      hasFailed = true;
      throw new Error('once');
    }
    if (eventId === 'a300')
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  });
  for (let version = 1; version <= 400; version++) bench.database.commit(deposited('a', version));
  const { delivery } = bench.start([first]);
  await bench.clock.advance(5_000);
  const stopped = delivery.stop({ timeoutMs: 10_000 });
  await bench.clock.advance(12_000);
  // Would otherwise wait until the virtual clock goes on.
  await stopped;
  const second = handlerOf({ name: 'one' });
  bench.start([second]);
  await bench.clock.advance(30_000);
  expect(second.seen.filter((id) => first.seen.includes(id))).toEqual(['a300']);
  expect(second.seen).toHaveLength(101);
});

test('suspects that a stop has left untried are not reported as failed', async () => {
  const bench = new DeliveryBench();
  const died = bench.start([batchHandlerOf({ name: 'publish' })]);
  await bench.clock.advance(300);
  died.access.kill();
  bench.database.processes.clear();
  bench.database.abandonAll();
  for (let version = 1; version <= 6; version++) bench.database.commit(deposited('a', version));
  const first = batchHandlerOf(options, async (ids, context) => {
    if (ids.length === 1) return;
    await untilCallAborted(context);
    throw new PartialBatchError([], { done: ids.slice(0, 2) });
  });
  const { delivery, failures } = bench.start([first]);
  await bench.clock.advance(15_000);
  const stopped = delivery.stop({ timeoutMs: 1_000 });
  await bench.clock.advance(5_000);
  await stopped;
  expect(first.batches).toEqual([['a1'], ['a2', 'a3', 'a4', 'a5', 'a6']]);
  const second = batchHandlerOf(options);
  bench.start([second]);
  await bench.clock.advance(60_000);
  expect([second.batches.flat(), failures]).toEqual([['a4', 'a5', 'a6'], []]);
});
