import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { batchHandlerOf, blockElsewhere, down, giveAway } from './bench-store.js';
import { DeliveryBench, gate, handlerOf, operatorOf } from './delivery-bench.js';

const fail = (): never => {
  throw new Error('no');
};
const onlyOnce = { attemptsMax: 1 };

describe('the later events of a blocked model', () => {
  test('wait after a restart, too', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(deposited('a', 1));
    const before = bench.start([handlerOf({ name: 'one', retry: onlyOnce }, fail)]);
    await bench.clock.advance(300);
    await before.delivery.stop();
    bench.database.commit(deposited('a', 2), deposited('b', 1));
    const handler = handlerOf({ name: 'one' });
    bench.start([handler]);
    await bench.clock.advance(5_000);
    expect(handler.seen).toEqual(['b1']);
  });

  test.each([5_001, 10_000])('wait after a restart even if there are %i such models', async (count) => {
    const bench = new DeliveryBench();
    const ids = Array.from({ length: count }, (_item, index) => `m${index}`);
    for (const id of ids) blockElsewhere(bench, 'one', deposited(id, 1, { slot: 0 }), { dead: true });
    const handler = handlerOf({ name: 'one' });
    bench.start([handler]);
    const inOrder = ids.toSorted();
    const some = [0, 4_998, 4_999, 5_000, count - 1].map((index) => inOrder[index]!);
    bench.database.commit(
      ...some.map((id) => deposited(id, 2, { slot: 0 })),
      deposited('other', 1, { slot: 0 }),
    );
    await bench.clock.advance(500);
    expect(handler.seen).toEqual(['other1']);
  });

  test('wait even if the model is blocked elsewhere while a process takes the slot over', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { access } = bench.start([handler]);
    const holds = [gate(), gate()];
    access.delays.set('cursors.load', [holds[0]!.opened]);
    access.delays.set('blocked.models', [holds[1]!.opened]);
    await bench.clock.advance(100);
    // Whichever the process has read by now, the other one it reads after this.
    blockElsewhere(bench, 'one', deposited('a', 1), { dead: true });
    bench.database.cursors.set('one 0', 1);
    for (const hold of holds) hold.open();
    await bench.clock.advance(5_000);
    expect(handler.seen).toEqual([]);
  });

  test('are handled by another handler for which the model is not blocked', async () => {
    const bench = new DeliveryBench();
    const handlers = [handlerOf({ name: 'one' }), handlerOf({ name: 'other' })] as const;
    for (const name of ['one', 'other']) blockElsewhere(bench, name, deposited('a', 1));
    blockElsewhere(bench, 'one', deposited('a', 2), { dead: true });
    // Both retries end at the same time.
    const { executor } = bench.start(handlers);
    await bench.clock.advance(2_000);
    bench.database.commit(deposited('a', 3));
    executor.committed();
    await bench.clock.advance(100);
    expect(handlers.map(({ seen }) => seen)).toEqual([['a1'], ['a1', 'a3']]);
    expect(bench.database.writes.blocked).toBe(1);
  });

  test('exclude a model whose name and id join to the same text', async () => {
    for (const separator of [' ', '', '\n', '/']) {
      const bench = new DeliveryBench();
      const handler = handlerOf({ name: 'one' }, ({ modelName }) =>
        modelName === 'Bank' ? fail() : undefined,
      );
      const blocked = { modelName: 'Bank', modelId: `Account${separator}1`, slot: 0 };
      const other = { modelName: `Bank${separator}Account`, modelId: '1', slot: 0 };
      bench.database.commit(deposited('a', 1, blocked), deposited('e', 1, other), deposited('e', 2, other));
      bench.start([handler]);
      await bench.clock.advance(300);
      expect([handler.seen, bench.database.writes.blocked]).toEqual([['a1', 'e1', 'e2'], 1]);
    }
  });

  test('wait even if an answer comes after the slot was regained', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, ({ modelVersion }) =>
      modelVersion === 1 ? fail() : undefined,
    );
    bench.database.commit(deposited('a', 1));
    const { access, executor } = bench.start([handler]);
    await bench.clock.advance(300);
    // The event is skipped, and the process queries whether others of its model are blocked.
    const answer = gate();
    access.delays.set('blocked.stillBlocked', [answer.opened]);
    await operatorOf(bench).skip({ handler: 'one', dead: false });
    bench.database.blocked.clear();
    const row = blockElsewhere(bench, 'one', deposited('a', 2));
    await bench.clock.advance(8_000);
    expect([handler.seen, access.delays.get('blocked.stillBlocked')]).toEqual([['a1', 'a2'], []]);
    const lease = bench.database.leaseOf('one', 0);
    bench.database.hand(lease, lease.processId, false);
    blockElsewhere(bench, 'one', row.event, { dead: true });
    await bench.clock.advance(4_000);
    answer.open();
    await bench.clock.advance(1_000);
    bench.database.commit(deposited('a', 3));
    executor.committed();
    await bench.clock.advance(1_000);
    expect(handler.seen).toEqual(['a1', 'a2']);
  });

  test('are handled directly once none is blocked, even if the database was down', async () => {
    const bench = new DeliveryBench();
    let failures = 1;
    const handler = handlerOf({ name: 'one' }, () => (failures-- > 0 ? fail() : undefined));
    bench.database.commit(deposited('a', 1));
    const { access, executor, errors } = bench.start([handler]);
    access.failures.set('blocked.stillBlocked', down(3));
    await bench.clock.advance(5_000);
    expect(errors).toHaveLength(3);
    bench.database.commit(deposited('a', 2));
    executor.committed();
    await bench.clock.advance(0);
    expect([handler.seen, bench.database.writes.blocked]).toEqual([['a1', 'a1', 'a2'], 1]);
  });
});

describe('a batch with events of a blocked model', () => {
  test('is left to another process that takes its slot while they are being blocked', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'one' });
    blockElsewhere(bench, 'one', deposited('a', 1), { dead: true });
    const { access, executor } = bench.start([handler]);
    await bench.clock.advance(500);
    const answer = gate();
    access.delays.set('blocked.block', [answer.opened]);
    bench.database.commit(deposited('a', 2), deposited('e', 1));
    giveAway(bench, 'one', 0);
    executor.committed();
    await bench.clock.advance(100);
    answer.open();
    await bench.clock.advance(4_000);
    expect([handler.batches, bench.database.cursors.get('one 0')]).toEqual([[], 0]);
  });

  test('that fails counts no attempt before each event has been tried alone', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'one' }, fail);
    bench.database.commit(...[1, 2, 3].map((version) => deposited('a', version)), deposited('e', 1));
    bench.start([handler]);
    await bench.clock.advance(300);
    const blocked = bench.database.blockedOf('one').map(({ event, attempts }) => [event.id, attempts]);
    expect(new Map(blocked as [string, number][])).toEqual(
      new Map([
        ['a1', 0],
        ['a2', 0],
        ['a3', 0],
        ['e1', 0],
      ]),
    );
  });
});

describe('statements that block events', () => {
  test('are few for the events behind a dead letter, and none has more events than allowed', async () => {
    const bench = new DeliveryBench();
    blockElsewhere(bench, 'one', deposited('a', 1), { dead: true });
    const { store, executor } = bench.start([handlerOf({ name: 'one' })], { blockMax: 100 });
    await bench.clock.advance(500);
    const blocked: string[][] = [];
    const block = store.blocked.block.bind(store.blocked);
    store.blocked.block = (events) => {
      blocked.push(events.map(({ event }) => event.id));
      return block(events);
    };
    bench.database.commit(...Array.from({ length: 700 }, (_item, index) => deposited('a', index + 2)));
    executor.committed();
    await bench.clock.advance(1_000);
    expect(Math.max(...blocked.map(({ length }) => length))).toBeLessThanOrEqual(100);
    expect(blocked.length).toBeLessThanOrEqual(10);
    expect(blocked.flat()).toEqual(Array.from({ length: 700 }, (_item, index) => `a${index + 2}`));
  });

  test('report the leases that they find lost', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, fail);
    const { executor, losses } = bench.start([handler]);
    await bench.clock.advance(500);
    bench.database.commit(deposited('a', 1));
    giveAway(bench, 'one', 0);
    executor.committed();
    await bench.clock.advance(100);
    expect(losses).toMatchObject([{ cause: 'taken', slotsByHandler: new Map([['one', [0]]]) }]);
    expect(bench.database.blocked.size).toBe(0);
  });
});

test('questions whether models are still blocked are asked in statements of limited size', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one', concurrency: 1_200 });
  for (let index = 0; index < 600; index++)
    blockElsewhere(bench, 'one', deposited(`m${index}`, 1, { slot: 0 }));
  for (let index = 0; index < 600; index += 2)
    blockElsewhere(bench, 'one', deposited(`m${index}`, 2, { slot: 0 }), { dead: true });
  const { store } = bench.start([handler]);
  const sizes: number[] = [];
  const ask = store.blocked.stillBlocked.bind(store.blocked);
  store.blocked.stillBlocked = (models) => {
    sizes.push(models.length);
    return ask(models);
  };
  // All attempts end at the same time.
  const hold = gate();
  const end = store.blocked.endAttempt.bind(store.blocked);
  store.blocked.endAttempt = (...ended) => hold.opened.then(() => end(...ended));
  await bench.clock.advance(5_000);
  expect(handler.seen).toHaveLength(600);
  hold.open();
  await bench.clock.advance(2_000);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(500);
  expect(sizes.length).toBeLessThan(20);
  const before = bench.database.writes.blocked;
  bench.database.commit(
    ...Array.from({ length: 600 }, (_item, index) => deposited(`m${index}`, 3, { slot: 0 })),
  );
  await bench.clock.advance(2_000);
  expect(new Set(handler.seen.slice(600))).toEqual(
    new Set(Array.from({ length: 300 }, (_item, index) => `m${2 * index + 1}3`)),
  );
  expect(bench.database.writes.blocked - before).toBe(300);
});
