import { expect, test } from 'vitest';

import {
  type BatchEventHandler,
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
  PartialBatchError,
} from '../src/index.js';
import { ClosedEvent, DepositedEvent, deposited } from './account.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

// The models `c` and `g` are in a slot that the second process gets; `a` is in another one.
const timeoutMs = 600_000;

test('an event whose load fails at the end of a stop during a hand-over is not lost', async () => {
  const bench = new DeliveryBench();
  const { clock, database } = bench;
  const settings = { readMax: 10, readBytesMax: 8_000 };
  const payload = { amount: 1, note: 'x'.repeat(1_000) };
  const until = (ms: number): Promise<void> => clock.sleep(ms - clock.elapsedMs());
  const first = handlerOf({ name: 'one', timeoutMs }, ({ modelId }) =>
    modelId === 'a' ? until(8_200) : undefined,
  );
  const { access, executor, delivery } = bench.start([first], settings);
  await clock.advance(300);
  access.delays.set('log.load', [until(10_300)]);
  access.lostAnswers.set('log.load', [new Error('statement timeout')]);
  database.commit(
    deposited('c', 1, { payload }),
    deposited('c', 2),
    deposited('c', 3),
    deposited('g', 1),
    deposited('a', 1),
  );
  executor.committed();
  await clock.advance(300);
  const second = handlerOf({ name: 'one', timeoutMs });
  bench.start([second], settings);
  // The first process learns within a third of a lease that the slot is beyond its share.
  await clock.advance(4_500);
  access.delays.set('cursors.save', [until(11_000)]);
  // It waits for handlers until 8.6 s, gives up at 9.8 s, and waits for the database until 11.8 s.
  void delivery.stop({ timeoutMs: 3_500 });
  await clock.advance(600_000);
  expect([...new Set([...first.seen, ...second.seen])].toSorted()).toEqual(['a1', 'c1', 'c2', 'c3', 'g1']);
});

test('a slot is handed over although the database refuses the rows of undone models', async () => {
  const bench = new DeliveryBench();
  const first = handlerOf({ name: 'one', timeoutMs }, ({ modelId }) =>
    modelId === 'c' ? gate().opened : undefined,
  );
  bench.database.commit(deposited('c', 1), deposited('g', 1));
  const { access, executor } = bench.start([first], { leaseMs: 2_000 });
  await bench.clock.advance(300);
  const refusals = Array.from({ length: 10_000 }, () => new Error('lock timeout'));
  for (const method of ['blocked.fail', 'blocked.hold'] as const) access.failures.set(method, refusals);
  const second = handlerOf({ name: 'one' });
  bench.start([second], { leaseMs: 2_000 });
  await bench.clock.advance(3_000);
  bench.database.commit(deposited('g', 2), deposited('k', 1));
  executor.committed();
  await bench.clock.advance(60_000);
  expect([...first.seen, ...second.seen]).toContain('g2');
});

type Wanted = DepositedEvent | ClosedEvent;

class CallsUntilDropped implements EventHandler<Wanted> {
  readonly event = [DepositedEvent, ClosedEvent];

  async handle({ eventId }: EventEnvelope<Wanted>): Promise<void> {
    if (eventId === 'e1') await gate().opened;
  }
}

class BatchUntilAborted implements BatchEventHandler<Wanted> {
  readonly event = [DepositedEvent, ClosedEvent];

  async handleBatch(_events: readonly EventEnvelope<Wanted>[], { signal }: HandlerContext): Promise<void> {
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    throw new PartialBatchError([], { done: ['i1'] });
  }
}

test.each([
  ['a call', CallsUntilDropped],
  ['an aborted batch', BatchUntilAborted],
])('what %s leaves undone holds up nothing for a version that does not want its type', async (_what, Old) => {
  FrameworkEventHandler({ name: 'one', startFrom: 'beginning', timeoutMs })(Old);
  const bench = new DeliveryBench();
  const closed = { type: 'ClosedEvent', payload: { reason: 'done' } };
  bench.database.commit(
    deposited('i', 1),
    deposited('e', 1, closed),
    deposited('a', 1, closed),
    deposited('a', 2),
  );
  const { delivery } = bench.start([new Old()], { concurrency: 1 });
  await bench.clock.advance(300);
  void delivery.stop({ timeoutMs: 1_000 });
  await bench.clock.advance(5_000);
  const next = handlerOf({ name: 'one' });
  bench.start([next]);
  bench.database.commit(deposited('a', 3));
  await bench.clock.advance(60_000);
  expect(next.seen).toEqual(['a2', 'a3']);
  expect(bench.database.blockedOf('one')).toEqual([]);
});
