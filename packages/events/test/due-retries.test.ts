import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { batchHandlerOf, blockElsewhere, down, giveAway, sentBy } from './bench-store.js';
import { DeliveryBench, gate, handlerOf, operatorOf } from './delivery-bench.js';

const fail = (): never => {
  throw new Error('no');
};

/** A handler with the given concurrency whose calls last until a test ends them, one gate for each event. */
function heldHandler(concurrency: number, ids: readonly string[], name = 'one') {
  const holds = new Map(ids.map((id) => [id, gate()]));
  const handler = handlerOf(
    { name, concurrency, timeoutMs: 3_600_000 },
    ({ eventId }) => holds.get(eventId)?.opened,
  );
  return { handler, end: (id: string) => holds.get(id)!.open() };
}

describe('due retries', () => {
  test.each([
    [1, 1],
    [3, 1],
    [4, 2],
  ])('of a handler with a concurrency of %i use at most %i of it', async (concurrency, places) => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', concurrency, timeoutMs: 3_600_000 }, ({ modelId }) =>
      modelId === 'new' ? undefined : new Promise(() => undefined),
    );
    for (const model of ['a', 'b', 'c', 'd', 'e']) blockElsewhere(bench, 'one', deposited(model, 1));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(5_000);
    expect(handler.seen).toHaveLength(places);
    bench.database.commit(deposited('new', 1));
    executor.committed();
    await bench.clock.advance(1_000);
    expect(handler.seen.includes('new1')).toBe(concurrency > places);
  });

  test('begin as soon as there is room, even while the database does not answer', async () => {
    const bench = new DeliveryBench();
    const { handler, end } = heldHandler(4, ['a1', 'b1', 'c1', 'd1']);
    for (const model of ['a', 'b', 'c', 'd']) blockElsewhere(bench, 'one', deposited(model, 1));
    const { access } = bench.start([handler]);
    await bench.clock.advance(1_000);
    expect(handler.seen).toHaveLength(2);
    access.delays.set('blocked.dueHeads', [new Promise(() => undefined)]);
    end(handler.seen[0]!);
    await bench.clock.advance(0);
    expect(handler.seen).toHaveLength(3);
  });

  test('of one model follow each other without a pause, whatever other handlers have to do', async () => {
    const bench = new DeliveryBench();
    const slow = handlerOf(
      { name: 'slow', concurrency: 2, timeoutMs: 3_600_000 },
      () => new Promise(() => undefined),
    );
    const handler = handlerOf({ name: 'one' });
    for (const model of ['a', 'b', 'c', 'd']) blockElsewhere(bench, 'slow', deposited(model, 1));
    bench.database.commit(...[1, 2, 3, 4, 5].map((version) => deposited('a', version)));
    blockElsewhere(bench, 'one', deposited('a', 1), { nextMs: bench.database.nowMs + 5_000 });
    bench.start([slow, handler]);
    await bench.clock.advance(4_900);
    expect([slow.seen.length, handler.seen]).toEqual([1, []]);
    await bench.clock.advance(350);
    expect(handler.seen).toEqual(['a1', 'a2', 'a3', 'a4', 'a5']);
  });

  test('are all found at once, however few of them one statement returns', async () => {
    const bench = new DeliveryBench();
    const { opened, open } = gate();
    const handler = handlerOf({ name: 'one', concurrency: 100 }, () => new Promise(() => undefined));
    for (let index = 0; index < 20; index++) blockElsewhere(bench, 'one', deposited(`x${index}-`, 1));
    const { access } = bench.start([handler], { dueMax: 1, pollMinMs: 1_000, pollMaxMs: 1_000 });
    access.delays.set('blocked.models', [opened]);
    await bench.clock.advance(500);
    open();
    await bench.clock.advance(0);
    expect(handler.seen).toHaveLength(20);
  });

  test('are made exactly when they are due, and soon when others are being made', async () => {
    const bench = new DeliveryBench();
    const calledMs: number[] = [];
    const handler = handlerOf(
      { name: 'one', timeoutMs: 3_600_000, retry: { backoffBaseMs: 700 } },
      ({ modelId, attempt }) => {
        if (modelId === 'b') return new Promise(() => undefined);
        calledMs.push(bench.clock.elapsedMs());
        return attempt === 1 ? fail() : undefined;
      },
    );
    bench.database.commit(deposited('a', 1));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(5_000);
    expect(calledMs[1]! - calledMs[0]!).toBe(700);
    blockElsewhere(bench, 'one', deposited('b', 1));
    await bench.clock.advance(20_000);
    expect(handler.seen).toContain('b1');
    bench.database.commit(deposited('e', 1));
    executor.committed();
    await bench.clock.advance(2_000);
    expect(calledMs[3]! - calledMs[2]!).toBeLessThanOrEqual(700 + 250);
  });

  test('that an operator requests are made within two of the longest polls', async () => {
    const bench = new DeliveryBench();
    let broken = true;
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, ({ modelId }) =>
      broken && modelId === 'a' ? fail() : undefined,
    );
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    // Another event waits for long.
    blockElsewhere(bench, 'one', deposited('b', 1), { nextMs: bench.database.nowMs + 200_000 });
    await bench.clock.advance(60_100);
    broken = false;
    await operatorOf(bench).replay({ handler: 'one' });
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a1', 'a1']);
  });

  test('are polled at most every quarter of a second when the database says that one is due but returns none', async () => {
    const bench = new DeliveryBench();
    blockElsewhere(bench, 'one', deposited('a', 1), { dead: true });
    const process = bench.start([handlerOf({ name: 'one' })]);
    process.store.blocked.nextDueMs = async () => 0;
    await bench.clock.advance(1_000);
    const sent = sentBy(bench, process);
    await bench.clock.advance(10_000);
    expect(sent('blocked.dueHeads').length).toBeLessThanOrEqual(40);
    expect(sent('blocked.dueHeads').length).toBeGreaterThan(30);
  });

  test('that a pause held back are all made when the handler is resumed', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const { handler, end } = heldHandler(2, ['a1']);
    blockElsewhere(bench, 'one', deposited('a', 1));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(1_000);
    for (const model of ['b', 'e', 'f']) blockElsewhere(bench, 'one', deposited(model, 1));
    await bench.clock.advance(2_000);
    expect(handler.seen).toEqual(['a1']);
    await operator.pause('one');
    await bench.clock.advance(4_000);
    end('a1');
    await bench.clock.advance(20_000);
    expect(handler.seen).toEqual(['a1']);
    await operator.resume('one');
    await bench.clock.advance(8_000);
    expect(handler.seen.toSorted()).toEqual(['a1', 'b1', 'e1', 'f1']);
    expect(bench.database.blocked.size).toBe(0);
    bench.database.commit(deposited('a', 2));
    executor.committed();
    await bench.clock.advance(0);
    expect(handler.seen.at(-1)).toBe('a2');
  });

  test('that wait for capacity are left to the next holder of their slot, and others are made', async () => {
    const bench = new DeliveryBench();
    const { handler, end } = heldHandler(1, ['c1', 'd1']);
    bench.database.commit(deposited('c', 1), deposited('d', 1));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(500);
    expect(handler.seen).toEqual(['c1']);
    for (const model of ['a', 'b']) blockElsewhere(bench, 'one', deposited(model, 1));
    await bench.clock.advance(12_000);
    giveAway(bench, 'one', 0);
    await bench.clock.advance(4_000);
    end('c1');
    end('d1');
    executor.committed();
    await bench.clock.advance(20_000);
    expect(handler.seen.toSorted()).toEqual(['b1', 'c1', 'd1']);
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a1' }, attempts: 1 }]);
  });

  test('are not made of an event that an operator skips while it is being read', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    blockElsewhere(bench, 'one', deposited('a', 1));
    const { access, executor } = bench.start([handler]);
    const answer = gate();
    access.delays.set('blocked.dueHeads', [answer.opened]);
    await bench.clock.advance(1_000);
    expect(await operatorOf(bench).skip({ handler: 'one', dead: false })).toBe(1);
    answer.open();
    await bench.clock.advance(1_000);
    expect([handler.seen, bench.database.blocked.size]).toEqual([[], 0]);
    bench.database.commit(deposited('a', 2));
    executor.committed();
    await bench.clock.advance(0);
    expect(handler.seen).toEqual(['a2']);
  });

  test('are not made of an event that an operator skips while it waits for a slow one', async () => {
    const bench = new DeliveryBench();
    const { handler, end } = heldHandler(1, ['a1']);
    for (const model of ['a', 'b']) blockElsewhere(bench, 'one', deposited(model, 1));
    bench.start([handler]);
    await bench.clock.advance(1_000);
    expect(handler.seen).toEqual(['a1']);
    expect(await operatorOf(bench).skip({ handler: 'one', modelId: 'b', dead: false })).toBe(1);
    end('a1');
    await bench.clock.advance(5_000);
    expect([handler.seen, bench.database.blocked.size]).toEqual([['a1'], 0]);
  });
});

describe('the retries of a batch handler', () => {
  test('take turns with the new events of their slot', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'one', batchMax: 1 }, async () => bench.clock.sleep(1_000));
    for (let version = 1; version <= 30; version++) bench.database.commit(deposited('a', version));
    for (const model of ['e', 'i', 'm']) blockElsewhere(bench, 'one', deposited(model, 1, { slot: 0 }));
    bench.start([handler]);
    await bench.clock.advance(12_000);
    const models = handler.batches.flat().map((id) => id.charAt(0));
    const last = Math.max(...['e', 'i', 'm'].map((model) => models.indexOf(model)));
    expect(models.filter((model) => model !== 'a')).toHaveLength(3);
    expect(last).toBeLessThan(9);
    expect(models.slice(0, last).join('')).not.toMatch(/[eim]{2}/);
  });

  test('are all made, even if others are due again and again', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf(
      { name: 'one', batchMax: 1, retry: { backoffMaxMs: 500 } },
      async (ids) => {
        await bench.clock.sleep(100);
        if (!ids.includes('new')) throw new Error('no');
      },
    );
    for (let model = 0; model < 20; model++)
      blockElsewhere(bench, 'one', deposited(`m${model}-`, 1, { slot: 0 }));
    bench.start([handler]);
    await bench.clock.advance(60_000);
    const models = new Set(handler.batches.flat());
    expect(models.size).toBe(20);
    const counts = [...models].map((id) => handler.batches.flat().filter((each) => each === id).length);
    expect(Math.min(...counts)).toBeGreaterThan(Math.max(...counts) / 3);
  });

  test('are made while another batch of their slot waits for its dependency', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'one', whenBatchFails: 'wait' }, (ids) =>
      ids.includes('a1') ? fail() : undefined,
    );
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    await bench.clock.advance(1_000);
    blockElsewhere(bench, 'one', deposited('e', 1, { slot: 0 }));
    await bench.clock.advance(20_000);
    expect(handler.batches).toContainEqual(['e1']);
  });
});

test('a statement that begins a retry is repeated after growing waits while the database is down', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one' });
  blockElsewhere(bench, 'one', deposited('a', 1), { openCount: 1 });
  const process = bench.start([handler], { quarantineMs: 600_000 });
  const sent = sentBy(bench, process);
  process.access.failures.set('blocked.begin', down(8));
  await bench.clock.advance(60_000);
  const times = sent('blocked.begin');
  expect(times.slice(1).map((ms, index) => ms - times[index]!)).toEqual([
    100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000,
  ]);
  expect(handler.seen).toEqual(['a1']);
});
