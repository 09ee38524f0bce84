import { setImmediate } from 'node:timers/promises';
import { seededRandom } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { type HandlerContext, PartialBatchError, defaultDeliverySettings } from '../src/index.js';
import { deposited } from './account.js';
import { batchHandlerOf } from './bench-store.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

/** They are all in slot 0. */
const models = ['a', 'e', 'i', 'm'];
/** They are in all four slots. */
const wideModels = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
const timeoutMs = 600_000;

async function untilCallAborted({ signal }: HandlerContext): Promise<void> {
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
}

describe('what is done behind unfinished events', () => {
  test('is not handled again after a stop that abandons a call', async () => {
    const bench = new DeliveryBench();
    const first = handlerOf({ name: 'one', timeoutMs }, ({ modelId }) =>
      modelId === 'a' ? gate().opened : undefined,
    );
    bench.database.commit(
      ...[1, 2, 3].flatMap((version) => models.map((model) => deposited(model, version))),
    );
    const { delivery } = bench.start([first]);
    await bench.clock.advance(300);
    expect(first.seen).toHaveLength(10);
    const stopped = delivery.stop({ timeoutMs: 1_000 });
    await bench.clock.advance(5_000);
    await stopped;
    const second = handlerOf({ name: 'one' });
    const { failures } = bench.start([second]);
    bench.database.commit(deposited('a', 4), deposited('e', 4));
    await bench.clock.advance(5_000);
    expect(second.seen.toSorted()).toEqual(['a1', 'a2', 'a3', 'a4', 'e4']);
    expect(failures).toEqual([]);
    expect(bench.database.blockedOf('one')).toEqual([]);
  });

  test('is not handled again if it was in an aborted batch with others behind it', async () => {
    const bench = new DeliveryBench();
    const options = { name: 'one', timeoutMs, batchMax: 4 };
    const first = batchHandlerOf(options, async (_ids, context) => {
      await untilCallAborted(context);
      throw new PartialBatchError([], { done: ['a1', 'e1'] });
    });
    bench.database.commit(...[1, 2].flatMap((version) => models.map((model) => deposited(model, version))));
    const { delivery } = bench.start([first]);
    await bench.clock.advance(300);
    const stopped = delivery.stop({ timeoutMs: 1_000 });
    await bench.clock.advance(5_000);
    await stopped;
    const second = batchHandlerOf(options);
    bench.start([second]);
    await bench.clock.advance(5_000);
    expect(first.batches).toEqual([['a1', 'e1', 'i1', 'm1']]);
    expect(second.batches.flat().toSorted()).toEqual(['a2', 'e2', 'i1', 'i2', 'm1', 'm2']);
  });

  test('is not handled again by the next process that gets the slot', async () => {
    const bench = new DeliveryBench();
    // The models `c` and `g` are in a slot that a second process gets.
    const first = handlerOf({ name: 'one', timeoutMs }, ({ modelId }) =>
      modelId === 'c' ? gate().opened : undefined,
    );
    bench.database.commit(deposited('c', 1), deposited('g', 1), deposited('g', 2));
    bench.start([first]);
    await bench.clock.advance(300);
    const second = handlerOf({ name: 'one' });
    bench.start([second]);
    await bench.clock.advance(4 * defaultDeliverySettings.leaseMs);
    expect(first.seen.toSorted()).toEqual(['c1', 'g1', 'g2']);
    expect(second.seen).toEqual(['c1']);
  });

  test('may be handled again if the database records nothing, and nothing is lost', async () => {
    const bench = new DeliveryBench();
    const first = handlerOf({ name: 'one', timeoutMs }, ({ modelId }) =>
      modelId === 'a' ? gate().opened : undefined,
    );
    bench.database.commit(...models.map((model) => deposited(model, 1)));
    const { delivery, access } = bench.start([first]);
    await bench.clock.advance(300);
    access.failures.set(
      'blocked.hold',
      Array.from({ length: 100 }, () => new Error('down')),
    );
    let isStopped = false;
    void delivery.stop({ timeoutMs: 1_000 }).then(() => (isStopped = true));
    await bench.clock.advance(2_500);
    expect(isStopped).toBe(true);
    const second = handlerOf({ name: 'one' });
    bench.start([second]);
    await bench.clock.advance(5_000);
    expect(second.seen.toSorted()).toEqual(['a1', 'e1', 'i1', 'm1']);
  });
});

test('what a stop leaves undone of many models is read again in batches, with what is done', async () => {
  const bench = new DeliveryBench();
  const options = { name: 'one', whenBatchFails: 'wait', batchMax: 100 } as const;
  let isDown = false;
  const first = batchHandlerOf(options, async () => {
    await bench.clock.sleep(20);
    if (isDown) throw new Error('away');
    isDown = true;
  });
  const ids = Array.from({ length: 1_000 }, (_item, index) => `a${index}-`);
  bench.database.commit(...ids.map((model) => deposited(model, 1, { slot: 0 })));
  const { delivery } = bench.start([first]);
  await bench.clock.advance(5_000);
  void delivery.stop();
  await bench.clock.advance(25_000);
  const second = batchHandlerOf(options);
  bench.start([second]);
  await bench.clock.advance(60_000);
  expect(second.batches.flat()).toHaveLength(1_000);
  expect(second.batches.length).toBeLessThanOrEqual(20);
});

test.each([
  { leaseMs: 10_000, loadMs: 30_000, fails: false },
  { leaseMs: 10_000, loadMs: 26_000, fails: true },
  { leaseMs: 2_000, loadMs: 9_000, fails: false },
])('an event that is being loaded while its slot is handed over is not lost: %o', async (given) => {
  const { leaseMs, loadMs, fails } = given;
  const bench = new DeliveryBench();
  const settings = { leaseMs, readMax: 10, readBytesMax: 2_000 };
  const payload = { amount: 1, note: 'x'.repeat(1_000) };
  const first = handlerOf({ name: 'one', timeoutMs });
  const { access, executor } = bench.start([first], settings);
  await bench.clock.advance(300);
  access.delays.set('log.load', [bench.clock.sleep(loadMs)]);
  if (fails) access.lostAnswers.set('log.load', [new Error('statement timeout')]);
  // The models `c` and `g` are in the slot that a second process gets.
  bench.database.commit(
    deposited('c', 1, { payload }),
    deposited('c', 2),
    deposited('c', 3),
    deposited('g', 1),
  );
  executor.committed();
  await bench.clock.advance(300);
  const second = handlerOf({ name: 'one', timeoutMs });
  bench.start([second], settings);
  await bench.clock.advance(600_000);
  expect([...new Set([...first.seen, ...second.seen])].toSorted()).toEqual(['c1', 'c2', 'c3', 'g1']);
});

test.each(Array.from({ length: 12 }, (_item, index) => index + 1))(
  'no event that is done is handled again while processes only start and stop (seed %i)',
  { tags: ['slow'] },
  async (seed) => {
    const random = seededRandom(seed);
    const bench = new DeliveryBench();
    const done: string[] = [];
    const versions = new Map<string, number>();
    const start = () => {
      const handler = handlerOf({ name: 'one', timeoutMs }, async ({ eventId }, context) => {
        await bench.clock.sleep(random() < 0.1 ? 5_000 : random() * 50);
        if (!context.signal.aborted) done.push(eventId);
      });
      return bench.start([handler], { leaseMs: 2_000, readMax: 20, concurrency: 3, pollMaxMs: 200 });
    };
    // The slots are handed over to each process that starts, and taken over by the one that goes on.
    start();
    let process = start();
    for (let round = 0; round < 60; round++) {
      for (let count = Math.floor(random() * 8); count > 0; count--) {
        const model = wideModels[Math.floor(random() * wideModels.length)]!;
        const version = (versions.get(model) ?? 0) + 1;
        versions.set(model, version);
        bench.database.commit(deposited(model, version));
      }
      await bench.clock.advance(random() * 400);
      if (random() < 0.7) continue;
      void process.delivery.stop({ timeoutMs: 1_000 });
      // The next one starts before, or after, the slots are free.
      await bench.clock.advance(random() * 3_000);
      process = start();
    }
    await bench.clock.advance(600_000);
    await setImmediate();
    const all = [...versions].flatMap(([model, last]) =>
      Array.from({ length: last }, (_item, index) => `${model}${index + 1}`),
    );
    expect(done.toSorted()).toEqual(all.toSorted());
    for (const model of wideModels) {
      const own = done.filter((id) => id.startsWith(model)).map((id) => Number(id.slice(1)));
      expect(own).toEqual(own.toSorted((one, other) => one - other));
    }
  },
);
