import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { sentBy } from './bench-store.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf } from './delivery-bench.js';
import { readInParts } from './read-in-parts.js';

/** A process at rest, whose cursors a test saves by committing events. */
async function resting(settings: Parameters<DeliveryBench['start']>[1] = {}) {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one' });
  const process = bench.start([handler], settings);
  await bench.clock.advance(5_000);
  const startMs = bench.clock.elapsedMs();
  const sent = sentBy(bench, process);
  const savedMs = (): readonly number[] => sent('cursors.save').map((ms) => ms - startMs);
  const commit = (...events: readonly DeliverableEvent[]): void => {
    bench.database.commit(...events);
    process.executor.committed();
  };
  return { bench, process, savedMs, commit, clock: bench.clock, handler };
}

/** Events of one model. */
function many(model: string, from: number, to: number) {
  return Array.from({ length: to - from + 1 }, (_item, index) => deposited(model, from + index));
}

const unwanted = { type: 'ClosedEvent' };

describe('a cursor', () => {
  test('is saved when it has rested for a second, in one statement with the others that are due', async () => {
    const { bench, commit, clock, savedMs } = await resting();
    commit(deposited('a', 1), deposited('b', 1));
    await clock.advance(500);
    commit(deposited('c', 1));
    await clock.advance(499);
    expect(savedMs()).toEqual([]);
    await clock.advance(5_000);
    expect(savedMs()).toEqual([1_000, 1_500]);
    expect(bench.database.writes.cursors).toBe(3);
  });

  test('that passed a hundred wanted events is saved at once, but at most ten times a second', async () => {
    const { commit, clock, savedMs } = await resting();
    commit(...many('a', 1, 99));
    await clock.advance(10);
    expect(savedMs()).toEqual([]);
    commit(...many('a', 100, 100));
    await clock.advance(10);
    commit(...many('a', 101, 200));
    await clock.advance(200);
    expect(savedMs()).toEqual([10, 110]);
  });

  test('is saved sooner after half of the events that may be unsaved, so that reading goes on', async () => {
    const { commit, clock, savedMs } = await resting({ unsavedMax: 400 });
    commit(...many('a', 1, 100));
    await clock.advance(10);
    commit(...many('a', 101, 300));
    await clock.advance(10);
    expect(savedMs()).toEqual([0, 10]);
  });

  test('that passes only unwanted events is saved every half minute, however often it moves', async () => {
    const { commit, clock, savedMs } = await resting();
    for (let version = 1; version <= 95; version++) {
      commit(deposited('a', version, unwanted));
      await clock.advance(1_000);
    }
    const times = savedMs();
    expect(times).toHaveLength(3);
    expect(times.slice(1).every((ms, index) => ms - times[index]! >= 30_000)).toBe(true);
  });

  test('that passes unwanted events after a wanted one is saved when that one is due, at its latest position', async () => {
    const { bench, commit, clock, savedMs } = await resting();
    commit(deposited('a', 1));
    await clock.advance(900);
    commit(deposited('a', 2, unwanted));
    await clock.advance(900);
    expect([savedMs(), bench.database.cursors.get('one 0')]).toEqual([[1_000], 2]);
  });

  test('that moves while its save fails is saved at its new position, and all that it passed counts as saved', async () => {
    const { bench, process, commit, clock, handler } = await resting({ unsavedMax: 10, readMax: 2 });
    const { opened, open } = gate();
    const save = process.store.cursors.save.bind(process.store.cursors);
    const saved: string[] = [];
    let isFirst = true;
    process.store.cursors.save = async (moves) => {
      if (isFirst) {
        isFirst = false;
        await opened;
        throw new Error('down');
      }
      saved.push(...moves.filter(({ slot }) => slot === 0).map(({ cursor }) => cursor));
      return save(moves);
    };
    commit(...many('a', 1, 4));
    await clock.advance(1_100);
    expect(isFirst).toBe(false);
    commit(...many('a', 5, 8));
    await clock.advance(50);
    open();
    await clock.advance(10_000);
    expect(saved).toEqual(['8@1']);
    // Had the first ones not been counted as saved, nothing more would be read.
    commit(...many('a', 9, 60));
    await clock.advance(10_000);
    expect(handler.seen).toHaveLength(60);
    expect(bench.database.cursors.get('one 0')).toBe(60);
  });

  test('that moves during each of several failing saves does not stop reading', async () => {
    const { bench, process, commit, clock, handler } = await resting({ unsavedMax: 10, readMax: 2 });
    const { store } = process;
    const save = store.cursors.save.bind(store.cursors);
    let failedCount = 0;
    let version = 0;
    store.cursors.save = async (moves) => {
      if (failedCount === 5) return save(moves);
      failedCount++;
      commit(...many('a', version + 1, version + 3));
      version += 3;
      await clock.sleep(50);
      throw new Error('down');
    };
    commit(...many('a', 1, (version = 3)));
    await clock.advance(60_000);
    expect([failedCount, version]).toEqual([5, 18]);
    commit(...many('a', 19, 100));
    await clock.advance(10_000);
    expect(handler.seen).toHaveLength(100);
    expect(bench.database.cursors.get('one 0')).toBe(100);
  });

  test('is never saved within a transaction that is read in parts', async () => {
    const { bench, process, commit, clock, handler } = await resting({ readMax: 2, unsavedMax: 2 });
    readInParts(process, [
      [0, 7],
      [9, 12],
    ]);
    const places = new Set<number>();
    commit(...many('a', 1, 7));
    commit(...many('a', 8, 9), ...many('a', 10, 12), deposited('b', 1));
    for (let step = 0; step < 100; step++) {
      await clock.advance(50);
      places.add(bench.database.cursors.get('one 0') ?? 0);
    }
    expect(handler.seen).toHaveLength(13);
    expect([...places].filter((place) => (place > 0 && place < 7) || (place > 9 && place < 12))).toEqual([]);
    expect(bench.database.cursors.get('one 0')).toBeGreaterThanOrEqual(12);
  });

  test('is loaded only after a save in progress, so that a process that regains a slot repeats nothing', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { store, access, executor } = bench.start([handler], { leaseMs: 3_000 });
    await bench.clock.advance(1_500);
    const token = bench.database.token('one', 0);
    const { opened, open } = gate();
    const save = store.cursors.save.bind(store.cursors);
    store.cursors.save = (moves) => opened.then(() => save(moves));
    bench.database.commit(deposited('a', 1));
    executor.committed();
    access.delays.set('leases.renew', [bench.clock.sleep(2_800)]);
    const loads = access.calls.get('cursors.load');
    await bench.clock.advance(6_000);
    expect([bench.database.token('one', 0), access.calls.get('cursors.load')]).toEqual([token, loads]);
    open();
    await bench.clock.advance(3_000);
    expect(access.calls.get('cursors.load')).toBeGreaterThan(loads!);
    expect(handler.seen).toEqual(['a1']);
  });
});

/** Reads that a process has sent, and the times at which it did. */
function reads(bench: DeliveryBench, process: BenchProcess): () => readonly number[] {
  const sent = sentBy(bench, process);
  return () => sent('log.read');
}

describe('the log', () => {
  const polls = { pollMinMs: 100, pollMaxMs: 350 };

  test('is polled less often the longer nothing comes, and at once when something was committed', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })], polls);
    await bench.clock.advance(0);
    const readMs = reads(bench, process);
    await bench.clock.advance(1_200);
    expect(readMs()).toEqual([100, 300, 650, 1_000]);
    process.executor.committed();
    await bench.clock.advance(400);
    expect(readMs().slice(4)).toEqual([1_200, 1_300, 1_500]);
  });

  test('is polled at short intervals again after a poll that found something', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })], polls);
    await bench.clock.advance(1_100);
    const readMs = reads(bench, process);
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(650);
    expect(new Set(readMs())).toEqual(new Set([1_350, 1_700]));
    await bench.clock.advance(350);
    expect([...new Set(readMs())].slice(2)).toEqual([1_800, 2_000]);
  });

  test('is read again when something was committed during a read', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    const { access, executor } = bench.start([handler], { pollMinMs: 60_000, pollMaxMs: 60_000 });
    await bench.clock.advance(1_000);
    const answer = gate();
    access.delays.set('log.read', [answer.opened]);
    executor.committed();
    await bench.clock.advance(100);
    bench.database.commit(deposited('a', 1));
    executor.committed();
    await bench.clock.advance(100);
    expect(handler.seen).toEqual([]);
    answer.open();
    await bench.clock.advance(0);
    expect(handler.seen).toEqual(['a1']);
  });

  test('is read ahead, so that the next read has been sent when the handler is called', async () => {
    const bench = new DeliveryBench();
    const counts: number[] = [];
    const handler = handlerOf({ name: 'one' }, () => void counts.push(readMs().length));
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const process = bench.start([handler], { readMax: 1 });
    const readMs = reads(bench, process);
    await bench.clock.advance(300);
    expect(counts).toEqual([2, 2]);
  });

  test('is not read for a handler that is paused', async () => {
    const bench = new DeliveryBench();
    const process = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(1_000);
    await process.store.cursors.setPaused('one', true);
    await bench.clock.advance(4_000);
    const readMs = reads(bench, process);
    await bench.clock.advance(60_000);
    expect(readMs()).toEqual([]);
  });

  test.each([
    ['three batches behind another one reads them from memory', {}, 0, 0],
    ['behind another one reads large batches again', { readBytesMax: 1_000 }, 2, 3],
  ])('that a handler %s', async (_what, settings, least, most) => {
    const bench = new DeliveryBench();
    const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'other' })] as const;
    const process = bench.start(handlers, { readMax: 2, ...settings });
    await bench.clock.advance(1_000);
    await process.store.cursors.setPaused('other', true);
    await bench.clock.advance(4_000);
    bench.database.commit(...many('a', 1, 6));
    process.executor.committed();
    await bench.clock.advance(1);
    await process.store.cursors.setPaused('other', false);
    expect(handlers.map(({ seen }) => seen.length)).toEqual([6, 0]);
    // Nothing is polled until the next renewal tells that it was resumed.
    const readMs = reads(bench, process);
    while (handlers[1].seen.length === 0) await bench.clock.advance(10);
    await bench.clock.advance(10);
    expect(handlers[1].seen).toHaveLength(6);
    const resumedMs = bench.clock.elapsedMs() - 20;
    const count = readMs().filter((ms) => ms >= resumedMs).length;
    expect(count).toBeGreaterThanOrEqual(least);
    expect(count).toBeLessThanOrEqual(most);
  });
});
