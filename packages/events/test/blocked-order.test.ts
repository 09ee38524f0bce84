import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { batchHandlerOf, blockElsewhere, giveAway } from './bench-store.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

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
    const { executor } = bench.start(handlers);
    await bench.clock.advance(2_000);
    bench.database.commit(deposited('a', 3));
    executor.committed();
    await bench.clock.advance(100);
    expect(handlers.map(({ seen }) => seen)).toEqual([[], ['a1', 'a3']]);
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
});

describe('a batch with events of a blocked model', () => {
  test('that fails counts no attempt before each event has been tried alone', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandlerOf({ name: 'one' }, fail);
    bench.database.commit(...[1, 2, 3].map((version) => deposited('a', version)), deposited('e', 1));
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(bench.database.blockedOf('one')).toMatchObject([
      { event: { id: 'a1' }, attempts: 0 },
      { event: { id: 'e1' }, attempts: 0 },
    ]);
  });
});

describe('statements that block models', () => {
  test('are not needed for the events behind a dead letter', async () => {
    const bench = new DeliveryBench();
    blockElsewhere(bench, 'one', deposited('a', 1), { dead: true });
    const { executor } = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(500);
    const before = bench.database.writes.blocked;
    bench.database.commit(...Array.from({ length: 700 }, (_item, index) => deposited('a', index + 2)));
    executor.committed();
    await bench.clock.advance(5_000);
    expect(bench.database.writes.blocked).toBe(before);
    expect(bench.database.cursors.get('one 0')).toBe(700);
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

test('an event that is drained before it is read from its slot is handled once', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one', retry: { backoffBaseMs: 1_000 } }, ({ eventId, attempt }) =>
    eventId === 'a1' && attempt === 1 ? fail() : undefined,
  );
  const { executor } = bench.start([handler], { pollMaxMs: 600_000 });
  await bench.clock.advance(300);
  bench.database.commit(deposited('a', 1));
  executor.committed();
  await bench.clock.advance(100);
  bench.database.commit(deposited('a', 2));
  executor.committed();
  await bench.clock.advance(100);
  // Another process commits; its notification comes late.
  bench.database.commit(deposited('a', 3));
  await bench.clock.advance(2_000);
  expect([handler.seen, bench.database.blocked.size]).toEqual([['a1', 'a1', 'a2', 'a3'], 0]);
  executor.committed();
  await bench.clock.advance(1_000);
  bench.database.commit(deposited('a', 4));
  executor.committed();
  await bench.clock.advance(1_000);
  expect(handler.seen.slice(4)).toEqual(['a4']);
});
