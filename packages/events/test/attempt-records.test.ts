import { ShardUnavailableError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { blockElsewhere, countsOf, down, giveAway, sentBy } from './bench-store.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, operatorOf, shard } from './delivery-bench.js';

const unavailable = new ShardUnavailableError(shard, 'no connection could be had');
const retry = { attemptsMax: 3, backoffBaseMs: 60_000, backoffMaxMs: 60_000 };

/** A process that makes a lone attempt at an event, which is therefore counted before the handler is called. */
function loneAttempt(work: () => void | Promise<void> = () => undefined) {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one', timeoutMs: 600_000, retry }, work);
  const row = blockElsewhere(bench, 'one', deposited('a', 1), { openCount: 1 });
  const process = bench.start([handler], { quarantineMs: 600_000 });
  return { bench, handler, row, process, clock: bench.clock };
}

async function stop({ bench, process }: { readonly bench: DeliveryBench; readonly process: BenchProcess }) {
  const stopped = process.delivery.stop({ timeoutMs: 5_000 });
  await bench.clock.advance(20_000);
  await stopped;
}

describe('an attempt whose slot another process takes during the call', () => {
  test.each<[string, () => void]>([
    ['succeeded', () => undefined],
    ['ended in an outage', () => fail(unavailable)],
  ])('is taken back when it %s', async (_how, outcome) => {
    const hold = gate();
    const { bench, row, process, clock } = loneAttempt(async () => {
      await hold.opened;
      outcome();
    });
    await clock.advance(500);
    expect(countsOf(row)).toEqual([2, 2]);
    giveAway(bench, 'one', 0);
    hold.open();
    await clock.advance(500);
    expect(countsOf(row)).toEqual([1, 1]);
    expect(process.losses).toMatchObject([{ cause: 'taken', slotsByHandler: new Map([['one', [0]]]) }]);
  });

  test('stays counted when it failed by itself, which was reported', async () => {
    const hold = gate();
    const { bench, row, process, clock } = loneAttempt(async () => {
      await hold.opened;
      fail(new Error('by itself'));
    });
    await clock.advance(500);
    giveAway(bench, 'one', 0);
    hold.open();
    await clock.advance(10_000);
    expect(countsOf(row)).toEqual([2, 2]);
    expect(process.failures).toMatchObject([{ attempt: 2, counted: true, willRetry: true }]);
  });

  test('is taken back even if the database was down when it ended', async () => {
    const hold = gate();
    const { bench, row, process, clock } = loneAttempt(() => hold.opened);
    await clock.advance(500);
    process.access.failures.set('blocked.move', down(1));
    hold.open();
    await clock.advance(1);
    giveAway(bench, 'one', 0);
    await clock.advance(10_000);
    expect(countsOf(row)).toEqual([1, 1]);
  });
});

describe('the beginning of an attempt is taken back', () => {
  test('when the slot is lost before the database answers', async () => {
    const hold = gate();
    const { bench, row, handler, process, clock } = loneAttempt();
    process.access.delays.set('blocked.begin', [hold.opened]);
    await clock.advance(500);
    expect(countsOf(row)[0]).toBe(2);
    giveAway(bench, 'one', 0);
    await clock.advance(5_000);
    hold.open();
    await clock.advance(1_000);
    expect([handler.seen, ...countsOf(row)]).toEqual([[], 1, 1]);
  });

  test('when the slot is lost while every answer is lost', async () => {
    const { bench, row, handler, process, clock } = loneAttempt();
    process.access.lostAnswers.set('blocked.begin', down(100));
    await clock.advance(1_000);
    expect(countsOf(row)[0]).toBe(2);
    giveAway(bench, 'one', 0);
    await clock.advance(10_000);
    expect([handler.seen, ...countsOf(row)]).toEqual([[], 1, 1]);
  });

  test('when another process takes the slot after a lost answer', async () => {
    const { bench, row, handler, process, clock } = loneAttempt();
    process.access.lostAnswers.set('blocked.begin', down(1));
    await clock.advance(50);
    giveAway(bench, 'one', 0);
    await clock.advance(200);
    expect([handler.seen, ...countsOf(row)]).toEqual([[], 1, 1]);
  });
});

test('an attempt that must be taken back is taken back as soon as the database can serve, however late', async () => {
  const { bench, row, process, clock } = loneAttempt();
  const hold = gate();
  process.access.delays.set('blocked.begin', [hold.opened]);
  await clock.advance(500);
  await operatorOf(bench).pause('one');
  await clock.advance(4_000);
  process.access.failures.set('blocked.giveBack', down(20));
  hold.open();
  await clock.advance(60_000);
  expect(countsOf(row)[0]).toBe(2);
  await clock.advance(40_000);
  expect(countsOf(row)[0]).toBe(1);
});

test('a process that stops tries for a limited time to take an attempt back, and then leaves it counted', async () => {
  const running = loneAttempt(() => new Promise(() => undefined));
  await running.clock.advance(500);
  running.process.access.failures.set('blocked.giveBack', down(20));
  const sent = sentBy(running.bench, running.process);
  await stop(running);
  expect(sent('blocked.giveBack').length).toBeGreaterThanOrEqual(3);
  expect(countsOf(running.row)[0]).toBe(2);
});

test('a failure is recorded even if the database refused to take back the count of the attempt before', async () => {
  const bench = new DeliveryBench();
  const hold = gate();
  const row = blockElsewhere(bench, 'one', deposited('a', 1), { openCount: 1 });
  const handler = handlerOf({ name: 'one', timeoutMs: 60_000, retry }, async () => {
    await hold.opened;
    fail(new Error('by itself'));
  });
  const { store } = bench.start([handler], { quarantineMs: 1_000 });
  const begin = store.blocked.begin.bind(store.blocked);
  store.blocked.begin = (attempts) =>
    attempts.every(({ attempt }) => attempt.counted) ? begin(attempts) : Promise.resolve([false]);
  await bench.clock.advance(3_000);
  hold.open();
  await bench.clock.advance(1_000);
  expect(row).toMatchObject({ attempts: 2, openAttempts: new Set(), error: 'Error: by itself' });
});

test('an event without attempts left waits for a lease each time before it becomes a dead letter', async () => {
  const leaseMs = 10_000;
  const bench = new DeliveryBench();
  const waits = { attemptsMax: 3, backoffBaseMs: 100, backoffMaxMs: 1_000 };
  const handler = handlerOf({ name: 'one', retry: waits }, () => fail(unavailable));
  const row = blockElsewhere(bench, 'one', deposited('a', 1), { attempts: 3, openCount: 1 });
  const { failures } = bench.start([handler], { leaseMs });
  await bench.clock.advance(leaseMs - 1_000);
  expect([row.dead, handler.seen]).toEqual([false, []]);
  // The process that made the last attempt reports that it does not count.
  row.attempts = 2;
  row.openAttempts.clear();
  row.nextMs = 0;
  await bench.clock.advance(3_000);
  expect(handler.seen.length).toBeGreaterThan(0);
  // Another process takes the slot for a moment, and ends during the last attempt.
  row.attempts = 3;
  row.openAttempts.add('of a process that has ended');
  row.nextMs = 0;
  await bench.clock.advance(leaseMs - 1_000);
  expect(row.dead).toBe(false);
  await bench.clock.advance(4_000);
  expect(row.dead).toBe(true);
  expect(failures.at(-1)).toMatchObject({ attempt: 3, counted: true, willRetry: false });
});

test('a handler that is retired while the database looks for due models gets none of the events in the answer', async () => {
  const bench = new DeliveryBench();
  // If it is registered again, it is a new handler with another permanent id.
  const handler = handlerOf({ name: 'new', aliases: ['old'], startFrom: 'now' });
  bench.database.handlers.set('old', false);
  bench.database.names.set('old', 'old');
  for (const slot of [0, 1, 2, 3]) {
    bench.database.cursors.set(`old ${slot}`, 0);
    bench.database.hand({ handler: 'old', slot }, undefined, true);
  }
  blockElsewhere(bench, 'old', deposited('a', 1));
  const { access, errors } = bench.start([handler]);
  const answer = gate();
  access.delays.set('blocked.dueHeads', [answer.opened]);
  await bench.clock.advance(500);
  bench.database.forget('old');
  await bench.clock.advance(8_000);
  answer.open();
  await bench.clock.advance(8_000);
  expect(handler.seen).toEqual([]);
  expect(errors).toHaveLength(1);
});

function fail(error: Error): never {
  throw error;
}
