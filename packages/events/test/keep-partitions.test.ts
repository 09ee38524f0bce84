import { describe, expect, test } from 'vitest';
import { DeliveryBench, handlerOf } from './delivery-bench.js';

const dayMs = 86_400_000;

/** Settings with which a day consists of few steps. */
const calm = { leaseMs: 3_600_000, pollMinMs: 60_000, pollMaxMs: 60_000 };

describe('the partitions of the log', () => {
  test('are created, and dropped unless the log is kept for ever, once a day', async () => {
    const bench = new DeliveryBench();
    const { access } = bench.start([handlerOf({ name: 'one' })], { ...calm, retentionMs: 30 * dayMs });
    await bench.clock.advance(300);
    expect(access.calls.get('partitions.create')).toBe(1);
    expect(access.calls.get('partitions.drop')).toBe(1);
    await bench.clock.advance(dayMs);
    expect(access.calls.get('partitions.create')).toBe(2);
    expect(access.calls.get('partitions.drop')).toBe(2);
  });

  test('are never dropped if the log is kept for ever', async () => {
    const bench = new DeliveryBench();
    const { access } = bench.start([handlerOf({ name: 'one' })], calm);
    await bench.clock.advance(dayMs);
    expect(access.calls.get('partitions.drop')).toBeUndefined();
  });

  test('are dropped even if none could be created, and created a minute later', async () => {
    const bench = new DeliveryBench();
    const locked = new Error('somebody reads the log');
    const process = bench.start([handlerOf({ name: 'one' })], { retentionMs: 30 * dayMs });
    process.access.failures.set('partitions.create', [locked]);
    await bench.clock.advance(300);
    expect(process.errors).toEqual([locked]);
    expect(process.access.calls.get('partitions.drop')).toBe(1);
    await bench.clock.advance(60_000);
    expect(process.access.calls.get('partitions.create')).toBe(2);
    expect(process.errors).toEqual([locked]);
  });

  test('are created even if none could be dropped, and dropped a minute later', async () => {
    const bench = new DeliveryBench();
    const locked = new Error('somebody reads the log');
    const process = bench.start([handlerOf({ name: 'one' })], { retentionMs: 30 * dayMs });
    process.access.failures.set('partitions.drop', [locked]);
    await bench.clock.advance(59_000);
    expect(process.errors).toEqual([locked]);
    expect(process.access.calls.get('partitions.drop')).toBe(1);
    await bench.clock.advance(2_000);
    expect(process.access.calls.get('partitions.drop')).toBe(2);
    await bench.clock.advance(120_000);
    expect(process.access.calls.get('partitions.drop')).toBe(2);
  });
});
