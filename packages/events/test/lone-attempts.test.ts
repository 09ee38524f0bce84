import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { blockElsewhere, giveAway, countsOf } from './bench-store.js';
import { DeliveryBench, gate, handlerOf, operatorOf } from './delivery-bench.js';

const quarantineMs = 1_000;

/** Handlers whose calls last until a test ends them; `counted` contains the events whose attempt was counted before its call. */
class HeldCalls {
  readonly bench: DeliveryBench;
  readonly calls: string[] = [];
  readonly counted: string[] = [];
  readonly #holds = new Map<string, ReturnType<typeof gate>>();
  readonly #failing = new Set<string>();

  constructor(bench: DeliveryBench) {
    this.bench = bench;
  }

  handler(concurrency = 16, name = 'one') {
    return handlerOf(
      { name, concurrency, timeoutMs: 2 ** 31 - 1, retry: { backoffBaseMs: 60_000 } },
      async ({ eventId, modelId }) => {
        this.calls.push(eventId);
        if (isCounted(this.bench, modelId)) this.counted.push(eventId);
        const hold = gate();
        this.#holds.set(eventId, hold);
        await hold.opened;
        if (this.#failing.has(eventId)) throw new Error('no');
      },
    );
  }

  async end(id: string, how: 'done' | 'failed' = 'done'): Promise<void> {
    if (how === 'failed') this.#failing.add(id);
    this.#holds.get(id)!.open();
    await this.bench.clock.advance(0);
  }
}

/** Whether the attempt at an event is counted at present. */
function isCounted({ database }: DeliveryBench, model: string): boolean {
  const [row] = database.blockedOf('one', model);
  return row !== undefined && countsOf(row)[0] === 2;
}

describe('an attempt at an event whose process died', () => {
  test('waits for the running attempts, and is then alone', async () => {
    const bench = new DeliveryBench();
    const held = new HeldCalls(bench);
    for (const model of ['a', 'b']) blockElsewhere(bench, 'other', deposited(model, 1));
    bench.start([held.handler(16, 'one'), held.handler(16, 'other')], { quarantineMs: 60_000 });
    await bench.clock.advance(1_000);
    expect(held.calls).toEqual(['a1', 'b1']);
    blockElsewhere(bench, 'one', deposited('e', 1), { openCount: 1 });
    await bench.clock.advance(12_000);
    blockElsewhere(bench, 'other', deposited('f', 1));
    await bench.clock.advance(2_000);
    await held.end('a1');
    expect(held.calls).toEqual(['a1', 'b1']);
    await held.end('b1');
    expect(held.calls.slice(2)).toEqual(['e1']);
    expect(isCounted(bench, 'e')).toBe(true);
    await held.end('e1');
    expect(held.calls.slice(3)).toEqual(['f1']);
  });

  test('is not counted beforehand when the running ones do not end in time', async () => {
    const bench = new DeliveryBench();
    const held = new HeldCalls(bench);
    blockElsewhere(bench, 'other', deposited('a', 1));
    bench.start([held.handler(), held.handler(16, 'other')], { quarantineMs });
    await bench.clock.advance(1_000);
    blockElsewhere(bench, 'one', deposited('e', 1), { openCount: 1 });
    await bench.clock.advance(20_000);
    expect([held.calls, held.counted]).toEqual([['a1', 'e1'], []]);
    blockElsewhere(bench, 'one', deposited('i', 1, { slot: 0 }));
    await bench.clock.advance(1_000);
    expect(held.calls.at(-1)).toBe('i1');
  });

  test.each([
    [1, 1_000],
    [4, 8_000],
  ])('after %i deaths is alone for at most %i ms', async (openCount, aloneMs) => {
    const bench = new DeliveryBench();
    const held = new HeldCalls(bench);
    blockElsewhere(bench, 'one', deposited('a', 1), { openCount });
    blockElsewhere(bench, 'one', deposited('b', 1));
    bench.start([held.handler()], { quarantineMs, leaseMs: 60_000 });
    await bench.clock.advance(1);
    expect(held.calls).toEqual(['a1']);
    await bench.clock.advance(aloneMs - 2);
    expect([held.calls, isCounted(bench, 'a')]).toEqual([['a1'], true]);
    await bench.clock.advance(2);
    expect([held.calls, isCounted(bench, 'a')]).toEqual([['a1', 'b1'], false]);
  });

  test('takes turns with others like it, and lets the rest begin in between', async () => {
    const bench = new DeliveryBench();
    const held = new HeldCalls(bench);
    for (const model of ['a', 'b']) blockElsewhere(bench, 'one', deposited(model, 1), { openCount: 1 });
    blockElsewhere(bench, 'one', deposited('c', 1));
    bench.start([held.handler()], { quarantineMs: 20_000, leaseMs: 60_000 });
    await bench.clock.advance(500);
    expect(held.calls).toEqual(['a1']);
    await held.end('a1', 'failed');
    expect(held.calls).toEqual(['a1', 'c1']);
    await held.end('c1');
    expect([held.calls, isCounted(bench, 'b')]).toEqual([['a1', 'c1', 'b1'], true]);
  });

  test('comes before all other retries', async () => {
    const bench = new DeliveryBench();
    const held = new HeldCalls(bench);
    blockElsewhere(bench, 'one', deposited('a', 1));
    blockElsewhere(bench, 'one', deposited('e', 1), { openCount: 1, nextMs: 2 });
    bench.start([held.handler(4)], { quarantineMs: 20_000, leaseMs: 60_000 });
    await bench.clock.advance(500);
    expect(held.calls).toEqual(['e1']);
    await held.end('e1');
    expect(held.calls).toEqual(['e1', 'a1']);
  });

  test('keeps no other event waiting once its slot belongs to another process', async () => {
    const bench = new DeliveryBench();
    const held = new HeldCalls(bench);
    for (const model of ['a', 'b']) blockElsewhere(bench, 'one', deposited(model, 1), { openCount: 1 });
    blockElsewhere(bench, 'one', deposited('c', 1));
    bench.start([held.handler()], { quarantineMs: 600_000 });
    await bench.clock.advance(500);
    expect(held.calls).toEqual(['a1']);
    giveAway(bench, 'one', 1);
    giveAway(bench, 'one', 0);
    await bench.clock.advance(4_000);
    expect(held.calls).toEqual(['a1', 'c1']);
  });

  test.each([
    ['its handler is paused', async (bench: DeliveryBench) => operatorOf(bench).pause('one')],
    ['its process stops', async (_bench: DeliveryBench, stop: () => void) => stop()],
  ])('is followed by no attempt that waited for it when %s meanwhile', async (_when, end) => {
    const bench = new DeliveryBench();
    const held = new HeldCalls(bench);
    blockElsewhere(bench, 'one', deposited('a', 1), { openCount: 1 });
    blockElsewhere(bench, 'one', deposited('b', 1));
    const { delivery } = bench.start([held.handler()], { quarantineMs: 600_000 });
    await bench.clock.advance(500);
    await end(bench, () => void delivery.stop());
    await bench.clock.advance(4_000);
    await held.end('a1');
    await bench.clock.advance(4_000);
    expect(held.calls).toEqual(['a1']);
    expect(bench.database.blockedOf('one', 'b')).toMatchObject([{ attempts: 1, openAttempts: new Set() }]);
  });
});
