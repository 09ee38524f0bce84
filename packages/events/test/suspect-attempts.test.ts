import { expect, test } from 'vitest';

import { deposited } from './account.js';
import { batchHandlerOf, die } from './bench-store.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, operatorOf } from './delivery-bench.js';

/** 300 suspects of one model, whose process has died in a call of the handler. */
async function suspects(): Promise<DeliveryBench> {
  const bench = new DeliveryBench();
  for (let version = 1; version <= 300; version++) bench.database.commit(deposited('a', version));
  const first = bench.start([handlerOf({ name: 'one' }, () => new Promise(() => undefined))]);
  await bench.clock.advance(1_000);
  die(bench, first);
  return bench;
}

/** Makes statements of a process slow. */
function slowDown({ access }: BenchProcess, bench: DeliveryBench, durationMs: number, method: string): void {
  const answer = access.answer.bind(access);
  access.answer = async (...asked) => {
    if (asked[0].startsWith(method)) await bench.clock.sleep(durationMs);
    return answer(...asked);
  };
}

function openAttempts(bench: DeliveryBench): number | undefined {
  return bench.database.blockedOf('one')[0]?.openAttempts.size;
}

test.each([250, 310, 400])(
  'a stop %i ms after suspects were taken over leaves no attempt open, because that would mean a death',
  async (afterMs) => {
    const bench = await suspects();
    const second = bench.start([handlerOf({ name: 'one', concurrency: 2 }, () => undefined)]);
    slowDown(second, bench, 50, 'blocked.');
    await bench.clock.advance(afterMs);
    const stopped = second.delivery.stop();
    await bench.clock.advance(20_000);
    await stopped;
    expect(openAttempts(bench)).toBe(0);
  },
);

test('a pause while suspects wait for capacity leaves no attempt open', async () => {
  const bench = await suspects();
  const hold = gate();
  const handler = handlerOf({ name: 'one', concurrency: 1 }, async ({ modelId }) => {
    if (modelId === 'b') await hold.opened;
  });
  const second = bench.start([handler]);
  slowDown(second, bench, 500, 'blocked.read');
  await bench.clock.advance(300);
  bench.database.commit(deposited('b', 1));
  second.executor.committed();
  await bench.clock.advance(1_000);
  await operatorOf(bench).pause('one');
  await bench.clock.advance(10_000);
  expect(handler.seen).toEqual(['a1', 'b1']);
  expect(openAttempts(bench)).toBe(0);
});

test('a batch handler gets suspects with no more bytes than any other batch', async () => {
  const bench = new DeliveryBench();
  const payload = { amount: 1, note: 'x'.repeat(1_000) };
  for (let version = 1; version <= 50; version++) bench.database.commit(deposited('a', version, { payload }));
  const first = bench.start([batchHandlerOf({ name: 'one' }, () => new Promise(() => undefined))]);
  await bench.clock.advance(1_000);
  die(bench, first);
  const handler = batchHandlerOf({ name: 'one' });
  bench.start([handler], { batchBytesMax: 10_000 });
  await bench.clock.advance(60_000);
  expect(handler.batches.flat()).toHaveLength(50);
  expect(Math.max(...handler.batches.map(({ length }) => length))).toBeLessThan(10);
});

test('an attempt does not stay open when its slot is handed over after the last suspect', async () => {
  const bench = new DeliveryBench();
  for (let version = 1; version <= 10; version++) bench.database.commit(deposited('d', version));
  let isDown = true;
  const drained = handlerOf({ name: 'one', retry: { backoffMaxMs: 100 } }, async () => {
    if (isDown) throw new Error('down');
    await bench.clock.sleep(1_000);
  });
  const settings = { readMax: 4 };
  const first = bench.start([drained], settings);
  await bench.clock.advance(1_000);
  // The process dies while it drains the model: more events may be suspects than there are.
  isDown = false;
  await bench.clock.advance(7_500);
  first.access.kill();
  const second = bench.start([handlerOf({ name: 'one' })], settings);
  const answer = second.access.answer.bind(second.access);
  const hold = gate();
  const lastReads: unknown[] = [];
  second.access.answer = async (...asked) => {
    const found = await answer(...asked);
    const isLast = asked[0] === 'blocked.read' && (found as readonly unknown[][]).flat().length === 0;
    if (isLast && lastReads.push(asked) === 1) await hold.opened;
    return found;
  };
  for (let round = 0; round < 40 && lastReads.length === 0; round++) await bench.clock.advance(500);
  expect([lastReads.length, openAttempts(bench)]).toEqual([1, 1]);
  bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(5_000);
  bench.database.commit(deposited('d', 11));
  hold.open();
  await bench.clock.advance(0);
  expect(openAttempts(bench) ?? 0).toBe(0);
});
