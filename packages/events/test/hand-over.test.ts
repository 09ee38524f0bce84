import { describe, expect, test } from 'vitest';

import { defaultDeliverySettings } from '../src/index.js';
import { deposited } from './account.js';
import { batchHandlerOf } from './bench-store.js';
import { DeliveryBench, handlerOf, operatorOf } from './delivery-bench.js';

const { leaseMs } = defaultDeliverySettings;
const models = ['a', 'b', 'c', 'd'];
/** Cursors that move are saved late, so that a process repeats a lot if its predecessor has not saved before it left. */
const savesLate = { cursorSaveMs: 30_000 };

/** The slots that each process holds, in the order in which the processes came. */
function heldSlots({ database: { processes, leases } }: DeliveryBench): readonly (readonly number[])[] {
  return [...processes.keys()].map((id) =>
    leases.filter(({ processId }) => processId === id).map(({ slot }) => slot),
  );
}

/** Commits the next events of all models. */
function commit({ database }: DeliveryBench, version: number): void {
  for (const model of models) database.commit(deposited(model, version));
}

/** A handler whose calls take some time, shared by all processes; notes whether two calls for one model ran at once. */
class SlowCalls {
  readonly calls: string[] = [];
  readonly overlaps: string[] = [];
  isDown = false;
  readonly #bench: DeliveryBench;
  readonly #callMs: number;
  readonly #running = new Set<string>();

  constructor(bench: DeliveryBench, callMs: number) {
    this.#bench = bench;
    this.#callMs = callMs;
  }

  handler(process: string) {
    const retry = { backoffBaseMs: 100, backoffMaxMs: 100 };
    return handlerOf({ name: 'one', retry }, async ({ eventId, modelId }) => {
      if (this.isDown) throw new Error('down');
      this.calls.push(`${process} ${eventId}`);
      if (this.#running.has(modelId)) this.overlaps.push(`${process} ${eventId}`);
      this.#running.add(modelId);
      await this.#bench.clock.sleep(this.#callMs);
      this.#running.delete(modelId);
    });
  }
}

describe('when a process joins', () => {
  test('events that were handled shortly before are not delivered again', async () => {
    const bench = new DeliveryBench();
    const [first, second] = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })];
    bench.start([first], savesLate);
    let version = 0;
    while (second.seen.length < 10 && version < 200) {
      if (version === 20) bench.start([second], savesLate);
      commit(bench, ++version);
      await bench.clock.advance(100);
    }
    await bench.clock.advance(1_000);
    expect(heldSlots(bench)).toEqual([
      [0, 1],
      [2, 3],
    ]);
    const all = models.flatMap((model) =>
      Array.from({ length: version }, (_unused, index) => `${model}${index + 1}`),
    );
    expect([...first.seen, ...second.seen].toSorted()).toEqual(all.toSorted());
    expect(second.seen.length).toBeGreaterThanOrEqual(10);
  });

  test('it calls no handler for a model before the last call of the previous holder has ended', async () => {
    const bench = new DeliveryBench();
    const slow = new SlowCalls(bench, 7_000);
    bench.start([slow.handler('first')]);
    for (let version = 1; version <= 20; version++) commit(bench, version);
    await bench.clock.advance(500);
    bench.start([slow.handler('second')]);
    await bench.clock.advance(20 * 7_000 + 2 * leaseMs);
    expect(slow.overlaps).toEqual([]);
    const byFirst = slow.calls.filter((call) => /first [cd]/.test(call));
    // What was begun within the time of a lease is finished; the rest is left.
    expect(byFirst.length).toBeLessThan(8);
    expect(new Set(slow.calls.map((call) => call.split(' ')[1])).size).toBe(4 * 20);
  });

  test('slots of a paused handler are handed over without a call', async () => {
    const bench = new DeliveryBench();
    const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })];
    bench.start([handlers[0]!], { pollMaxMs: 100 });
    await bench.clock.advance(500);
    await operatorOf(bench).pause('one');
    await bench.clock.advance(leaseMs / 2);
    commit(bench, 1);
    bench.start([handlers[1]!]);
    await bench.clock.advance(leaseMs);
    expect(heldSlots(bench).map(({ length }) => length)).toEqual([2, 2]);
    expect(handlers.flatMap(({ seen }) => seen)).toEqual([]);
    await operatorOf(bench).resume('one');
    await bench.clock.advance(leaseMs);
    expect(handlers.map(({ seen }) => seen.toSorted())).toEqual([
      ['a1', 'b1'],
      ['c1', 'd1'],
    ]);
  });

  test('events that a handler had read when it was paused are left to the new holder', async () => {
    const bench = new DeliveryBench();
    const slow = new SlowCalls(bench, 1_000);
    bench.start([slow.handler('first')]);
    for (let version = 1; version <= 9; version++) commit(bench, version);
    await bench.clock.advance(1_500);
    await operatorOf(bench).pause('one');
    await bench.clock.advance(leaseMs / 2);
    bench.start([slow.handler('second')]);
    await bench.clock.advance(leaseMs);
    const callCount = slow.calls.length;
    expect(heldSlots(bench).map(({ length }) => length)).toEqual([2, 2]);
    await bench.clock.advance(leaseMs);
    expect(slow.calls).toHaveLength(callCount);
    await operatorOf(bench).resume('one');
    await bench.clock.advance(leaseMs + 9_000);
    expect(slow.overlaps).toEqual([]);
    expect(slow.calls.filter((call) => call.endsWith('d9'))).toEqual(['second d9']);
  });

  test('a batch that waits for its dependency is handed over after one more attempt', async () => {
    const bench = new DeliveryBench();
    const waits = { name: 'one', whenBatchFails: 'wait' } as const;
    const first = batchHandlerOf(waits, () => {
      throw new Error('down');
    });
    const { failures } = bench.start([first]);
    commit(bench, 1);
    await bench.clock.advance(60_000);
    const second = batchHandlerOf(waits);
    bench.start([second]);
    await bench.clock.advance(leaseMs);
    expect(heldSlots(bench).map(({ length }) => length)).toEqual([2, 2]);
    expect(second.batches.flat().toSorted()).toEqual(['c1', 'd1']);
    expect(failures.findLast(({ event }) => event.modelId === 'd')?.willRetry).toBe(true);
  });

  test('a model that is being drained is continued by the new holder where the previous one has stopped', async () => {
    const bench = new DeliveryBench();
    const slow = new SlowCalls(bench, 500);
    slow.isDown = true;
    bench.start([slow.handler('first')]);
    for (let version = 1; version <= 100; version++) bench.database.commit(deposited('d', version));
    await bench.clock.advance(1_000);
    slow.isDown = false;
    await bench.clock.advance(3_000);
    bench.start([slow.handler('second')]);
    await bench.clock.advance(100 * 500 + 2 * leaseMs);
    expect(slow.calls.map((call) => call.split(' ')[1])).toEqual(
      Array.from({ length: 100 }, (_unused, index) => `d${index + 1}`),
    );
    expect(slow.calls.at(-1)).toBe('second d100');
    expect(bench.database.blocked.size).toBe(0);
  });

  test.each([
    ['a call of half a minute', 29_000, 30_000],
    ['a call of half an hour, which is aborted', 1_800_000, 3_600_000],
  ])(
    'events of other slots do not wait for %s, and those of its slot not for long',
    async (_what, callMs, timeoutMs) => {
      const bench = new DeliveryBench();
      const seenMs = new Map<string, number>();
      const slow = (): ReturnType<typeof handlerOf> =>
        handlerOf({ name: 'one', timeoutMs }, async ({ eventId }) => {
          seenMs.set(eventId, bench.clock.elapsedMs());
          if (eventId === 'd1' && !seenMs.has('h1')) await bench.clock.sleep(callMs);
        });
      bench.start([slow()]);
      bench.database.commit(deposited('d', 1));
      await bench.clock.advance(2_000);
      bench.start([slow()]);
      await bench.clock.advance(leaseMs / 2);
      const committedMs = bench.clock.elapsedMs();
      bench.database.commit(deposited('c', 1), deposited('h', 1));
      await bench.clock.advance(6 * leaseMs);
      expect(seenMs.get('c1')! - committedMs).toBeLessThan(leaseMs);
      expect(seenMs.get('h1')! - committedMs).toBeLessThan(3 * leaseMs);
    },
  );

  test('other models are not repeated when the last events of a blocked one are left', async () => {
    const bench = new DeliveryBench();
    const calls: string[] = [];
    let isDown = true;
    const draining = () =>
      handlerOf({ name: 'one', retry: { backoffMaxMs: 100 } }, async ({ eventId, modelId }) => {
        if (isDown && modelId === 'd') throw new Error('down');
        calls.push(eventId);
        if (modelId === 'd') await bench.clock.sleep(200);
      });
    for (let version = 1; version <= 40; version++) bench.database.commit(deposited('d', version));
    bench.start([draining()]);
    await bench.clock.advance(1_000);
    isDown = false;
    await bench.clock.advance(1_000);
    // What is committed to it now is kept until it is open.
    bench.database.commit(deposited('d', 41));
    for (let version = 1; version <= 100; version++) bench.database.commit(deposited('h', version));
    await bench.clock.advance(1_500);
    bench.start([draining()]);
    await bench.clock.advance(40 * 200 + 3 * leaseMs);
    expect(calls).toHaveLength(141);
    expect(new Set(calls).size).toBe(141);
  });

  test('a refused save holds the slots back until it succeeds', async () => {
    const bench = new DeliveryBench();
    const [first, second] = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })];
    const { access } = bench.start([first], savesLate);
    commit(bench, 1);
    await bench.clock.advance(1_000);
    access.failures.set('cursors.save', [new Error('no'), new Error('no')]);
    bench.start([second], savesLate);
    await bench.clock.advance(2 * leaseMs);
    expect(heldSlots(bench).map(({ length }) => length)).toEqual([2, 2]);
    expect(second.seen).toEqual([]);
  });

  test('a renewal that fails gives the slots back with the next one', async () => {
    const bench = new DeliveryBench();
    const [first, second] = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })];
    const { store, errors } = bench.start([first], savesLate);
    const renew = store.leases.renew.bind(store.leases);
    store.leases.renew = async (...asked) => {
      const [, , , , givenBack = []] = asked;
      if (givenBack.length === 0) return renew(...asked);
      store.leases.renew = renew;
      throw new Error('no');
    };
    await bench.clock.advance(1_000);
    bench.start([second], savesLate);
    await bench.clock.advance(2 * leaseMs);
    expect(errors.map(String)).toEqual(['Error: no']);
    expect(heldSlots(bench).map(({ length }) => length)).toEqual([2, 2]);
    commit(bench, 1);
    await bench.clock.advance(1_000);
    expect([first, second].map(({ seen }) => seen.toSorted())).toEqual([
      ['a1', 'b1'],
      ['c1', 'd1'],
    ]);
  });
});

test('slots that would be handed over are kept when the process that was to have them has gone', async () => {
  const bench = new DeliveryBench();
  const slow = new SlowCalls(bench, 8_000);
  bench.start([slow.handler('first')], savesLate);
  for (let version = 1; version <= 3; version++) commit(bench, version);
  await bench.clock.advance(500);
  const { delivery } = bench.start([slow.handler('second')]);
  await bench.clock.advance(3_500);
  await delivery.stop();
  await bench.clock.advance(60_000);
  expect(heldSlots(bench)).toEqual([[0, 1, 2, 3]]);
  expect(new Set(slow.calls.map((call) => call.split(' ')[1])).size).toBe(12);
  expect(slow.overlaps).toEqual([]);
});
