import type { DeliverableEvent } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { PartialBatchError } from '../src/index.js';
import { QuarantineGate } from '../src/subscription/quarantine.js';
import { deposited } from './account.js';
import { batchHandlerOf, blockElsewhere, die, down as manyDown, sentBy } from './bench-store.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, operatorOf } from './delivery-bench.js';
import { readInParts } from './read-in-parts.js';

const leaseMs = 10_000;
const down = new Error('down');
const hanging = () => handlerOf({ name: 'one' }, () => new Promise(() => undefined));

/** A process that had begun to handle the events when it died. */
async function diedWith(...events: readonly DeliverableEvent[]): Promise<DeliveryBench> {
  const bench = new DeliveryBench();
  bench.database.commit(...events);
  const { access } = bench.start([hanging()], { leaseMs });
  await bench.clock.advance(300);
  access.kill();
  return bench;
}

function versionsOf(model: string, count: number): readonly DeliverableEvent[] {
  return Array.from({ length: count }, (_item, index) => deposited(model, index + 1));
}

/** Changes what a process does to block the models of suspects. */
function beforeBlocking({ store }: BenchProcess, work: (ids: readonly string[]) => Promise<void>): void {
  const hold = store.blocked.hold.bind(store.blocked);
  store.blocked.hold = async (events) => {
    await work(events.map(({ event }) => event.id));
    return hold(events);
  };
}

describe('the suspects of a process that died', () => {
  test('are only as many events as it may have read', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...Array.from({ length: 100 }, (_item, index) => deposited('a', index + 1)));
    const { access } = bench.start([hanging()], { readMax: 2, unsavedMax: 4 });
    await bench.clock.advance(300);
    access.kill();
    bench.start([hanging()], { readMax: 2, unsavedMax: 4 });
    await bench.clock.advance(15_000);
    // The cursor has passed them, because their model is blocked.
    const suspectCount = bench.database.cursor('one', 0);
    expect(suspectCount).toBeGreaterThan(0);
    expect(suspectCount).toBeLessThanOrEqual(4 + 2 * 2 + 2);
  });

  test('of one model are tried in one recorded attempt, with a few statements', async () => {
    const bench = await diedWith(...versionsOf('a', 300));
    const handler = handlerOf({ name: 'one' });
    const { access } = bench.start([handler], { leaseMs });
    await bench.clock.advance(20_000);
    expect(handler.seen).toHaveLength(300);
    expect(access.calls.get('blocked.begin')).toBe(1);
    expect(access.calls.get('blocked.move')).toBeLessThan(6);
    expect(access.calls.get('blocked.dueHeads')).toBeLessThan(30);
  });

  test('of one model are narrowed down to the event that ends processes', async () => {
    const bench = await diedWith(...versionsOf('a', 300));
    const seen: string[] = [];
    let deaths = 0;
    for (; deaths < 20 && !bench.database.blockedOf('one').some(({ dead }) => dead); deaths++) {
      const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, ({ eventId }) => {
        if (eventId !== 'a200') return void seen.push(eventId);
        access.kill();
        return new Promise(() => undefined);
      });
      const { access } = bench.start([handler], { leaseMs });
      await bench.clock.advance(60_000);
    }
    expect(bench.database.blockedOf('one')).toMatchObject([
      { event: { id: 'a200' }, attempts: 2, dead: true },
    ]);
    expect(deaths).toBeLessThan(10);
    // Only a part of what was done before it is repeated after a death.
    expect(new Set(seen).size).toBe(199);
    expect(seen.length).toBeLessThan(3 * 199);
  });

  test('include every event of a transaction after its cursor, however large', async () => {
    const bench = new DeliveryBench();
    const before = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(300);
    die(bench, before);
    bench.database.commit(...Array.from({ length: 30 }, (_item, index) => deposited('a', index + 1)));
    const process = bench.start([hanging()], { readMax: 2, unsavedMax: 2 });
    readInParts(process, [[0, 20]]);
    await bench.clock.advance(2_000);
    const suspects = bench.database.cursor('one', 0);
    expect(suspects).toBeGreaterThanOrEqual(20 + 2 + 2);
    expect(suspects).toBeLessThanOrEqual(20 + 2 + 2 * 2 + 2);
  });

  test('are tried at once, even if the cursor behind them could not be saved', async () => {
    const bench = await diedWith(deposited('a', 1));
    const handler = handlerOf({ name: 'one' });
    const process = bench.start([handler], { leaseMs });
    // The suspect is blocked only after the other slots turn out to have none.
    beforeBlocking(process, () => bench.clock.sleep(200));
    process.access.failures.set('cursors.save', [down]);
    await bench.clock.advance(leaseMs + 2_000);
    expect(handler.seen).toEqual(['a1']);
  });

  test('leave later events unblocked even if one is tried early', async () => {
    const bench = await diedWith(...['b', 'a', 'e'].map((model) => deposited(model, 1)));
    const handler = handlerOf({ name: 'one' });
    const process = bench.start([handler], { leaseMs, blockMax: 1 });
    beforeBlocking(process, async (ids) => (ids.includes('e1') ? bench.clock.sleep(3_000) : undefined));
    await bench.clock.advance(leaseMs + 10_000);
    expect(handler.seen.toSorted()).toEqual(['a1', 'b1', 'e1']);
    const { blocked } = bench.database.writes;
    bench.database.commit(...['b', 'a', 'e'].map((model) => deposited(model, 2)));
    process.executor.committed();
    await bench.clock.advance(100);
    expect(handler.seen.slice(3).toSorted()).toEqual(['a2', 'b2', 'e2']);
    expect(bench.database.writes.blocked).toBe(blocked);
  });

  test('are tried in a recorded attempt, and the events after them are handled as usual', async () => {
    const bench = await diedWith(...[1, 2, 3].map((version) => deposited('a', version)));
    const handler = handlerOf({ name: 'one' });
    const process = bench.start([handler], { leaseMs });
    const begun = sentBy(bench, process);
    await bench.clock.advance(leaseMs + 5_000);
    expect(handler.seen).toEqual(['a1', 'a2', 'a3']);
    expect(begun('blocked.begin')).toHaveLength(1);
    bench.database.commit(deposited('a', 4));
    process.executor.committed();
    await bench.clock.advance(1_000);
    expect([handler.seen.at(-1), bench.database.blocked.size]).toEqual(['a4', 0]);
    expect(begun('blocked.begin')).toHaveLength(1);
  });

  test('are left to the next process if they cannot be blocked before theirs stops', async () => {
    const bench = await diedWith(deposited('a', 1));
    const { access, delivery } = bench.start([handlerOf({ name: 'one' })], { leaseMs });
    access.failures.set('blocked.hold', manyDown(100));
    await bench.clock.advance(leaseMs + 2_000);
    const stopped = delivery.stop({ timeoutMs: 1_000 });
    await bench.clock.advance(10_000);
    await stopped;
    expect(bench.database.cursors.get('one 0')).toBe(0);
    const handler = handlerOf({ name: 'one' });
    bench.start([handler]);
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a1']);
  });

  test('delay their slot until they are tried, also after a pause', async () => {
    const bench = new DeliveryBench();
    const before = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(300);
    await before.delivery.stop();
    bench.database.hand({ handler: 'one', slot: 0 }, undefined, true);
    bench.database.commit(...['b', 'c', 'd', 'f'].map((model) => deposited(model, 1)), deposited('a', 1));
    const holds = new Map(['b1', 'c1', 'd1', 'f1'].map((id) => [id, gate()]));
    const handler = handlerOf(
      { name: 'one', concurrency: 4, timeoutMs: 600_000 },
      ({ eventId }) => holds.get(eventId)?.opened,
    );
    const { access, executor } = bench.start([handler]);
    await bench.clock.advance(1_000);
    expect(handler.seen.toSorted()).toEqual(['b1', 'c1', 'd1', 'f1']);
    await operatorOf(bench).pause('one');
    await bench.clock.advance(4_000);
    const answer = gate();
    access.delays.set('blocked.dueHeads', [answer.opened]);
    await operatorOf(bench).resume('one');
    for (const hold of holds.values()) hold.open();
    bench.database.commit(deposited('e', 1));
    executor.committed();
    await bench.clock.advance(8_000);
    expect(handler.seen.slice(4)).toEqual([]);
    answer.open();
    await bench.clock.advance(8_000);
    expect(handler.seen.slice(4)).toEqual(['a1', 'e1']);
  });

  test('delay no other slot that is read together with theirs', async () => {
    const bench = new DeliveryBench();
    const before = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(300);
    await before.delivery.stop();
    bench.database.hand({ handler: 'one', slot: 0 }, undefined, true);
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const handler = handlerOf({ name: 'one' });
    const { access } = bench.start([handler]);
    access.delays.set('cursors.save', [new Promise(() => undefined)]);
    await bench.clock.advance(300);
    expect(bench.database.blockedOf('one')).toMatchObject([{ modelId: 'a', position: { modelVersion: 1 } }]);
    expect(handler.seen).toEqual(['b1']);
  });

  test('stay suspects when their slot is given back before they are tried', async () => {
    // The last slot goes to the second process.
    const bench = await diedWith(...versionsOf('d', 40));
    const slow = () => handlerOf({ name: 'one' }, () => bench.clock.sleep(1_000));
    bench.start([slow()], { leaseMs });
    await bench.clock.advance(leaseMs + 4_000);
    const second = slow();
    const { access } = bench.start([second], { leaseMs });
    await bench.clock.advance(20_000);
    expect(second.seen.length).toBeGreaterThan(0);
    expect(access.calls.get('blocked.begin')).toBeGreaterThan(0);
  });

  test('are forgotten once they have been tried, by the database as well', async () => {
    const bench = await diedWith(...versionsOf('d', 3));
    const { access, losses } = bench.start([handlerOf({ name: 'one' })], { leaseMs });
    access.failures.set('leases.recovered', manyDown(3));
    await bench.clock.advance(leaseMs + 5_000);
    expect(bench.database.leaseOf('one', 3).abandoned).toBe(true);
    await bench.clock.advance(20_000);
    expect([bench.database.leaseOf('one', 3).abandoned, losses]).toEqual([false, []]);
  });

  test('leave no attempt open after a pause, or when their process stops', async () => {
    const bench = await diedWith(...versionsOf('a', 300));
    const handler = handlerOf({ name: 'one' }, () => bench.clock.sleep(200));
    const { delivery } = bench.start([handler], { leaseMs });
    await bench.clock.advance(leaseMs + 2_000);
    const open = () => bench.database.blockedOf('one').map(({ openAttempts }) => openAttempts.size);
    for (let times = 0; times < 3; times++) {
      await operatorOf(bench).pause('one');
      await bench.clock.advance(4_000);
      expect(open()).toEqual([0]);
      await operatorOf(bench).resume('one');
      await bench.clock.advance(4_000);
    }
    const stopped = delivery.stop({ timeoutMs: 5_000 });
    await bench.clock.advance(10_000);
    await stopped;
    expect(open()).toEqual([0]);
  });

  test('leave no attempt open once what follows them in the log is handled', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...versionsOf('a', 100));
    const settings = { leaseMs, readMax: 2, unsavedMax: 4 };
    const { access } = bench.start([hanging()], settings);
    await bench.clock.advance(300);
    access.kill();
    const open = () => bench.database.blockedOf('one').map(({ openAttempts }) => openAttempts.size);
    const counts: (readonly number[])[] = [];
    const handler = handlerOf({ name: 'one' }, () => void counts.push(open()));
    bench.start([handler], settings);
    await bench.clock.advance(leaseMs + 15_000);
    expect(handler.seen).toHaveLength(100);
    // What the first process may have read before it died.
    expect(counts.findLastIndex(([count]) => count === 1) + 1).toBe(8);
  });

  test('are forgotten by the database once the first of each model has failed', async () => {
    const bench = await diedWith(...versionsOf('a', 3));
    const handler = handlerOf({ name: 'one', retry: { backoffBaseMs: 60_000 } }, () => {
      throw down;
    });
    bench.start([handler], { leaseMs });
    await bench.clock.advance(leaseMs + 4_000);
    expect(handler.seen).toEqual(['a1']);
    expect(bench.database.leaseOf('one', 0).abandoned).toBe(false);
  });

  test('of a batch handler are tried alone after they have failed together', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...versionsOf('a', 20));
    const { access } = bench.start([batchHandlerOf({ name: 'one' }, () => new Promise(() => undefined))], {
      leaseMs,
    });
    await bench.clock.advance(300);
    access.kill();
    const handler = batchHandlerOf({ name: 'one' }, (ids) => {
      if (ids.includes('a5')) throw new Error('no');
    });
    const { failures } = bench.start([handler], { leaseMs });
    await bench.clock.advance(leaseMs + 3_500);
    expect(failures.slice(0, 2)).toMatchObject([
      { eventCount: 19, counted: false, willRetry: true },
      { event: { id: 'a5' }, eventCount: 1, counted: true },
    ]);
  });

  test('of a batch handler are tried together', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(...versionsOf('a', 100));
    const { access } = bench.start([batchHandlerOf({ name: 'one' }, () => new Promise(() => undefined))], {
      leaseMs,
    });
    await bench.clock.advance(300);
    access.kill();
    const handler = batchHandlerOf({ name: 'one' }, (ids) => {
      if (ids.includes('a50')) throw new PartialBatchError([{ eventId: 'a50', error: new Error('no') }]);
    });
    bench.start([handler], { leaseMs });
    await bench.clock.advance(leaseMs + 5_000);
    expect(handler.batches.length).toBeLessThan(10);
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a50' } }]);
    const ids = handler.batches.flat().filter((id) => id !== 'a50');
    expect(new Set(ids).size).toBe(ids.length);
  });
});

test('an event that ends processes gets exactly its attempts behind another one of its model', async () => {
  const bench = await diedWith(deposited('a', 1), deposited('a', 2));
  const attempts: number[] = [];
  for (let life = 0; life < 10; life++) {
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, ({ eventId, attempt }) => {
      if (eventId === 'a1') return undefined;
      attempts.push(attempt);
      access.kill();
      return new Promise(() => undefined);
    });
    const { access } = bench.start([handler], { leaseMs });
    await bench.clock.advance(60_000);
  }
  expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a2' }, attempts: 2, dead: true }]);
  expect(attempts.at(-1)).toBe(2);
});

test('an event that ends processes behind done ones is found with few deaths', async () => {
  const bench = new DeliveryBench();
  const done = versionsOf('a', 61).slice(1);
  bench.database.commit(...versionsOf('a', 80));
  blockElsewhere(bench, 'one', deposited('a', 1), { openCount: 1, doneIds: done.map(({ id }) => id) });
  bench.database.cursors.set('one 0', 80);
  const calls: string[] = [];
  let deaths = 0;
  for (; deaths < 30 && !bench.database.blockedOf('one').some(({ dead }) => dead); deaths++) {
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, ({ eventId }) => {
      calls.push(eventId);
      if (eventId !== 'a70') return undefined;
      access.kill();
      return new Promise(() => undefined);
    });
    const { access } = bench.start([handler], { leaseMs });
    await bench.clock.advance(60_000);
  }
  expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a70' }, dead: true }]);
  expect(deaths).toBeLessThan(10);
  expect(calls.filter((id) => done.some((event) => event.id === id))).toEqual([]);
});

const fail = (): Promise<never> => Promise.reject(new Error('no'));

test('attempts that fail, however many, leave the next one alone at once', async () => {
  const clock = new VirtualClock();
  const attempts = new QuarantineGate(clock);
  for (let round = 0; round < 3; round++) {
    const failed = await Promise.allSettled([attempts.runShared(fail), attempts.runIsolated(fail, 1_000)]);
    expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  }
  let isAlone = false;
  await attempts.runIsolated(async (alone) => void (isAlone = !alone.aborted), 1_000);
  await clock.advance(1);
  expect([isAlone, clock.sleeperCount]).toEqual([true, 0]);
});
