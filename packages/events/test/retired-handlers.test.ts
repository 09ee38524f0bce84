import { describe, expect, test } from 'vitest';
import { deposited } from './account.js';
import { type BenchProcess, DeliveryBench, gate, handlerOf, operatorOf } from './delivery-bench.js';

/** Keeps a process from renewing for a minute, during which the handler is retired. */
async function retireMeanwhile(
  bench: DeliveryBench,
  { access }: BenchProcess,
  handler: string,
): Promise<void> {
  const failures = Array.from({ length: 22 }, () => new Error('out of reach'));
  access.failures.set('leases.renew', failures);
  await bench.clock.advance(50_000);
  await operatorOf(bench).retire(handler);
  await bench.clock.advance(30_000);
  expect(failures).toEqual([]);
}

describe('a handler that was retired while its process could not renew', () => {
  test('is registered and reported as new, and receives later events', async () => {
    const bench = new DeliveryBench();
    const mails = handlerOf({ name: 'mails', startFrom: 'now' });
    const process = bench.start([mails, handlerOf({ name: 'books' })]);
    await bench.clock.advance(2_000);
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(2_000);
    await retireMeanwhile(bench, process, 'mails');
    bench.database.commit(deposited('a', 2), deposited('b', 1));
    await bench.clock.advance(30_000);
    expect(mails.seen).toEqual(['a1', 'a2', 'b1']);
    const told = process.errors.map(String).filter((error) => !error.includes('out of reach'));
    expect(told).toEqual([expect.stringMatching(/mails.*retired.*registered again/)]);
    expect([...bench.database.handlers.keys()].toSorted()).toEqual(['books', 'mails']);
  });

  test('is registered under its current name even if it had others', async () => {
    const bench = new DeliveryBench();
    const before = bench.start([handlerOf({ name: 'old' })]);
    await bench.clock.advance(1_000);
    await before.delivery.stop();
    const renamed = handlerOf({ name: 'new', aliases: ['old'] });
    const process = bench.start([renamed]);
    await bench.clock.advance(2_000);
    await retireMeanwhile(bench, process, 'old');
    expect([...bench.database.handlers.keys()]).toEqual(['new']);
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(2_000);
    expect(renamed.seen).toEqual(['a1']);
    bench.database.commit(deposited('b', 1));
    await process.delivery.stop();
    expect(bench.database.leases.every(({ processId }) => processId === undefined)).toBe(true);
  });

  test('is registered again once the database no longer refuses it', async () => {
    const bench = new DeliveryBench();
    const mails = handlerOf({ name: 'mails', startFrom: 'now' });
    const process = bench.start([mails]);
    await bench.clock.advance(2_000);
    process.access.failures.set('cursors.register', [new Error('refused'), new Error('refused')]);
    await retireMeanwhile(bench, process, 'mails');
    bench.database.commit(deposited('a', 1));
    await bench.clock.advance(2_000);
    expect(mails.seen).toEqual(['a1']);
  });
});

test('a handler whose registration a failover lost is registered again', async () => {
  const bench = new DeliveryBench();
  const replica = bench.database.snapshot();
  const mails = handlerOf({ name: 'mails' });
  const { errors } = bench.start([mails]);
  await bench.clock.advance(2_000);
  bench.database.failOver(replica);
  bench.database.commit(deposited('a', 1));
  await bench.clock.advance(30_000);
  expect(mails.seen).toEqual(['a1']);
  const told = errors.map(String).filter((error) => !error.startsWith('HistoryChanged'));
  expect(told).toEqual([expect.stringContaining('mails')]);
});

test('a name that a failover lost is registered again, so that it still finds the handler', async () => {
  const bench = new DeliveryBench();
  const before = bench.start([handlerOf({ name: 'old' })]);
  await bench.clock.advance(1_000);
  await before.delivery.stop();
  const replica = bench.database.snapshot();
  const { errors } = bench.start([handlerOf({ name: 'new', aliases: ['old', 'older'] })]);
  await bench.clock.advance(2_000);
  bench.database.failOver(replica);
  await bench.clock.advance(30_000);
  expect([...bench.database.names]).toEqual(['old', 'new', 'older'].map((name) => [name, 'old']));
  const told = errors.map(String).filter((error) => !error.startsWith('HistoryChanged'));
  expect(told).toEqual([
    expect.stringMatching(/failover lost names of handler old, .*registered again: new, older/),
  ]);
});

test('a handler whose current name was lost in a failover keeps its permanent id, even if the code lists no former names', async () => {
  const bench = new DeliveryBench();
  const before = bench.start([handlerOf({ name: 'old' })]);
  await bench.clock.advance(1_000);
  await before.delivery.stop();
  const replica = bench.database.snapshot();
  const renamed = bench.start([handlerOf({ name: 'new', aliases: ['old'] })]);
  await bench.clock.advance(1_000);
  await renamed.delivery.stop();
  const mails = handlerOf({ name: 'new', startFrom: 'now' });
  const { errors } = bench.start([mails]);
  await bench.clock.advance(2_000);
  bench.database.failOver(replica);
  bench.database.commit(deposited('a', 1));
  await bench.clock.advance(30_000);
  expect([...bench.database.names]).toEqual(['old', 'new'].map((name) => [name, 'old']));
  expect([...bench.database.handlers.keys()]).toEqual(['old']);
  expect(mails.seen).toEqual(['a1']);
  const told = errors.map(String).filter((error) => !error.startsWith('HistoryChanged'));
  expect(told).toEqual([
    expect.stringMatching(/failover lost names of handler old, .*registered again: new/),
  ]);
});

test('a failover between gaining leases and loading their cursors is reported once, as a failover', async () => {
  const bench = new DeliveryBench();
  const replica = bench.database.snapshot();
  const mails = handlerOf({ name: 'mails' });
  const { access, errors } = bench.start([mails]);
  const leased = gate();
  access.delays.set('leases.renew', [leased.opened]);
  await bench.clock.advance(2_000);
  bench.database.failOver(replica);
  leased.open();
  bench.database.commit(deposited('a', 1));
  await bench.clock.advance(30_000);
  expect(mails.seen).toEqual(['a1']);
  expect(errors.map(String)).toEqual([expect.stringMatching(/mails.*failover.*registered again/)]);
});
