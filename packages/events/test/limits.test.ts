import { describe, expect, test } from 'vitest';
import { type BatchEventHandler, type EventEnvelope, FrameworkEventHandler } from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

const many = (model: string, count: number): ReturnType<typeof deposited>[] =>
  Array.from({ length: count }, (_item, index) => deposited(model, index + 1));

/** The ids of all events that are read from the log from now on. */
function readIds({ log }: ReturnType<DeliveryBench['start']>['store']): ReadonlySet<string> {
  const ids = new Set<string>();
  const read = log.read.bind(log);
  log.read = async (...asked) => {
    const batch = await read(...asked);
    for (const { id } of batch.events) ids.add(id);
    return batch;
  };
  return ids;
}

describe('reading ahead', () => {
  test('ends when too many events are unfinished', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' }, () => hold.opened);
    bench.database.commit(...many('a', 100));
    const { store } = bench.start([handler], { readMax: 5, unfinishedMax: 10 });
    const read = readIds(store);
    await bench.clock.advance(300);
    expect(read.size).toBe(10);
    hold.open();
    await bench.clock.advance(300);
    expect(handler.seen).toHaveLength(100);
  });

  test('ends when the events that are read and not finished have as many bytes as four reads may return', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' }, () => hold.opened);
    bench.database.commit(...many('a', 1_000));
    const { store } = bench.start([handler], { readMax: 10, readBytesMax: 5_000, unfinishedMax: 1_000 });
    let [bytes, count] = [0, 0];
    const readLog = store.log.read.bind(store.log);
    store.log.read = async (...asked) => {
      const batch = await readLog(...asked);
      for (const event of batch.events) bytes += event.bytes ?? 0;
      count += batch.events.length;
      return batch;
    };
    await bench.clock.advance(1_000);
    expect(bytes / count).toBeGreaterThan(300);
    expect(bytes).toBeGreaterThan(15_000);
    expect(bytes).toBeLessThanOrEqual(20_000);
    hold.open();
    await bench.clock.advance(10_000);
    expect(handler.seen).toHaveLength(1_000);
  });

  test('ends when too many events are beyond the saved cursors', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' }, ({ modelId }) => (modelId === 'a' ? hold.opened : undefined));
    bench.database.commit(deposited('a', 1), ...many('e', 100));
    bench.start([handler], { readMax: 5, unsavedMax: 20 });
    await bench.clock.advance(5_000);
    expect(handler.seen).toHaveLength(20);
    hold.open();
    await bench.clock.advance(5_000);
    expect(handler.seen).toHaveLength(101);
  });
});

describe('a failed batch that waits', () => {
  test.each([
    ['unfinished', { unfinishedMax: 40 }],
    ['beyond the saved cursors', { unsavedMax: 40 }],
  ])(
    'lets other slots continue when the limit of events that are %s stops its reads',
    async (_where, limit) => {
      const bench = new DeliveryBench();
      const hold = gate();
      const seen: string[] = [];
      class Batches implements BatchEventHandler<DepositedEvent> {
        readonly event = DepositedEvent;
        async handleBatch(envelopes: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
          seen.push(...envelopes.map(({ eventId }) => eventId));
          if (envelopes[0]!.modelId !== 'a') return;
          await hold.opened;
          throw new Error('no');
        }
      }
      FrameworkEventHandler({ name: 'batches', startFrom: 'beginning', whenBatchFails: 'wait' })(Batches);
      bench.database.commit(...many('a', 100));
      const { store, executor } = bench.start([new Batches()], { readMax: 10, ...limit });
      const read = readIds(store);
      await bench.clock.advance(1_000);
      expect(read.size).toBe(40);
      hold.open();
      bench.database.commit(...many('b', 100));
      executor.committed();
      await bench.clock.advance(60_000);
      expect(seen.filter((id) => id.startsWith('b'))).toHaveLength(100);
      expect([...read].filter((id) => id.startsWith('a'))).toHaveLength(40);
    },
  );

  test('stops the reads of its slot while it is retried, however often and long', async () => {
    const bench = new DeliveryBench();
    class Batches implements BatchEventHandler<DepositedEvent> {
      readonly event = DepositedEvent;
      async handleBatch([first]: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
        // The batches of different slots take different times, so that they are retried at different times.
        await bench.clock.sleep(1_000 + 100 * first!.modelId.charCodeAt(0));
        throw new Error('no');
      }
    }
    FrameworkEventHandler({ name: 'batches', startFrom: 'beginning', whenBatchFails: 'wait' })(Batches);
    for (let version = 1; version <= 1_000; version++)
      bench.database.commit(...['a', 'b', 'c', 'd'].map((model) => deposited(model, version)));
    const settings = { readMax: 10, readBytesMax: 5_000, batchMax: 2 };
    const { access, failures } = bench.start([new Batches()], settings);
    await bench.clock.advance(20_000);
    expect(failures.length).toBeGreaterThanOrEqual(4);
    const before = access.calls.get('log.read');
    await bench.clock.advance(300_000);
    expect(failures.length).toBeGreaterThan(50);
    expect(access.calls.get('log.read')).toBe(before);
  });
});

describe('large headers', () => {
  test('are loaded only for the call, too, and the parts of large events in memory count as read', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const headers: string[] = [];
    const handler = handlerOf({ name: 'one' }, async (envelope) => {
      headers.push(envelope.headers['baggage']!);
      await hold.opened;
    });
    for (let version = 1; version <= 300; version++)
      bench.database.commit(
        deposited('a', 2 * version, { headers: { baggage: 'x'.repeat(2_000) } }),
        deposited('a', 2 * version + 1, {
          headers: { baggage: 'x'.repeat(900) },
          payload: { amount: 1, text: 'x'.repeat(900) },
        }),
      );
    const { store } = bench.start([handler], { readMax: 10, readBytesMax: 10_000 });
    let bytes = 0;
    const readLog = store.log.read.bind(store.log);
    store.log.read = async (...asked) => {
      const batch = await readLog(...asked);
      for (const event of batch.events) bytes += JSON.stringify(event.headers).length;
      return batch;
    };
    await bench.clock.advance(5_000);
    expect(bytes).toBeGreaterThan(30_000);
    expect(bytes).toBeLessThanOrEqual(40_000);
    hold.open();
    await bench.clock.advance(60_000);
    expect(headers.map((text) => text.length)).toEqual(
      Array.from({ length: 600 }, (_item, index) => (index % 2 === 0 ? 2_000 : 900)),
    );
  });
});

describe('large events', () => {
  test('are loaded when their handler is called, even when they are retried', async () => {
    const bench = new DeliveryBench();
    const texts: unknown[] = [];
    const handler = handlerOf({ name: 'one' }, ({ payload, attempt, modelId }) => {
      texts.push((payload as { readonly text?: string }).text?.length);
      if (modelId === 'b' && attempt === 1) throw new Error('once');
    });
    const large = { payload: { amount: 1, text: 'x'.repeat(2_000) } };
    bench.database.commit(deposited('a', 1, large), deposited('b', 1, large), deposited('c', 1));
    const { access } = bench.start([handler], { readMax: 10, readBytesMax: 10_000 });
    access.failures.set('log.load', [new Error('the database is down for a moment')]);
    await bench.clock.advance(10_000);
    expect(texts.filter((length) => length === 2_000)).toHaveLength(3 - 1 + 1);
    expect(texts.filter((length) => length === undefined)).toHaveLength(1);
    expect(access.calls.get('log.load')).toBe(4);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('do not become dead letters because their database is slow to return them', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one', timeoutMs: 1_000, retry: { attemptsMax: 1 } });
    bench.database.commit(deposited('a', 1, { payload: { amount: 1, text: 'x'.repeat(2_000) } }));
    const { access, failures } = bench.start([handler], { readMax: 10, readBytesMax: 10_000 });
    access.delays.set('log.load', [hold.opened]);
    await bench.clock.advance(5_000);
    hold.open();
    await bench.clock.advance(1_000);
    expect([handler.seen, failures]).toEqual([['a1'], []]);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('are left to the next process if they are not loaded when delivery stops', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one' });
    bench.database.commit(deposited('a', 1, { payload: { amount: 1, text: 'x'.repeat(2_000) } }));
    const { access, delivery, failures } = bench.start([handler], { readMax: 10, readBytesMax: 10_000 });
    access.delays.set('log.load', [hold.opened]);
    await bench.clock.advance(1_000);
    const stopped = delivery.stop({ timeoutMs: 1_000 });
    await bench.clock.advance(1_100);
    hold.open();
    await bench.clock.advance(1_000);
    await stopped;
    expect([handler.seen, failures]).toEqual([[], []]);
    bench.start([handler]);
    await bench.clock.advance(1_000);
    expect(handler.seen).toEqual(['a1']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('limit a batch by its bytes, and one that exceeds the limit is delivered alone', async () => {
    const bench = new DeliveryBench();
    const sizes: number[] = [];
    class Batches implements BatchEventHandler<DepositedEvent> {
      readonly event = DepositedEvent;
      async handleBatch(envelopes: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
        sizes.push(envelopes.length);
      }
    }
    FrameworkEventHandler({ name: 'batches', startFrom: 'beginning' })(Batches);
    const large = { payload: { amount: 1, text: 'x'.repeat(2_000) } };
    for (let version = 1; version <= 6; version++) bench.database.commit(deposited('a', version, large));
    bench.start([new Batches()], { batchBytesMax: 6_000 });
    await bench.clock.advance(1_000);
    expect(sizes).toEqual([2, 2, 2]);
    bench.database.commit(
      deposited('a', 7, { payload: { amount: 1, text: 'x'.repeat(20_000) } }),
      deposited('a', 8),
    );
    await bench.clock.advance(2_000);
    expect(sizes).toEqual([2, 2, 2, 1, 1]);
  });
});

describe('a cursor', () => {
  test('does not pass a failed event that could not be blocked yet', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, () => {
      throw new Error('no');
    });
    bench.database.commit(deposited('a', 1));
    const { access } = bench.start([handler]);
    access.failures.set(
      'blocked.fail',
      Array.from({ length: 5 }, () => new Error('down')),
    );
    await bench.clock.advance(2_000);
    expect(bench.database.cursors.get('one 0')).toBe(0);
    await bench.clock.advance(20_000);
    expect(bench.database.cursors.get('one 0')).toBe(1);
    expect(bench.database.blocked.size).toBe(1);
  });

  test('is saved later when saving fails', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(deposited('a', 1));
    const { access } = bench.start([handlerOf({ name: 'one' })]);
    access.failures.set('cursors.save', [new Error('down')]);
    await bench.clock.advance(5_000);
    expect(bench.database.cursors.get('one 0')).toBe(1);
  });
});

test('notifications go out at most once per interval', async () => {
  const bench = new DeliveryBench();
  const { executor } = bench.start([handlerOf({ name: 'one' })]);
  bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(10_000);
  for (let elapsedMs = 0; elapsedMs < 100; elapsedMs++) {
    executor.committed();
    await bench.clock.advance(1);
  }
  expect(bench.database.writes.notifies).toBeGreaterThanOrEqual(4);
  expect(bench.database.writes.notifies).toBeLessThanOrEqual(6);
});

test('a slot whose holder died is not read further while its suspects are being tried', async () => {
  const bench = new DeliveryBench();
  const hold = gate();
  const handler = handlerOf({ name: 'one' }, ({ eventId }) => (eventId === 'a1' ? hold.opened : undefined));
  const before = bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(300);
  before.access.kill();
  bench.database.processes.clear();
  bench.database.abandonAll();
  bench.database.commit(deposited('a', 1));
  const { executor } = bench.start([handler]);
  await bench.clock.advance(300);
  bench.database.commit(deposited('a', 2));
  executor.committed();
  await bench.clock.advance(2_000);
  expect(bench.database.cursor('one', 0)).toBe(1);
  hold.open();
  await bench.clock.advance(1_000);
  expect(handler.seen).toEqual(['a1', 'a2']);
  // One row is added, moved and deleted.
  expect(bench.database.writes.blocked).toBe(3);
});

test('a slot is not read further until all of its suspects have been found', async () => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one' }, ({ modelVersion }) =>
    modelVersion === 1 ? new Promise(() => undefined) : undefined,
  );
  const before = bench.start([handlerOf({ name: 'one' })]);
  await bench.clock.advance(300);
  before.access.kill();
  bench.database.processes.clear();
  bench.database.abandonAll();
  bench.database.commit(deposited('a', 1), deposited('b', 1));
  const { executor } = bench.start([handler], { dueMax: 1 });
  await bench.clock.advance(5_000);
  bench.database.commit(deposited('f', 2));
  executor.committed();
  await bench.clock.advance(1_000);
  expect(handler.seen.toSorted()).toEqual(['a1', 'b1']);
});
