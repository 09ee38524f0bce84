import { Action, FrameworkError, ShardIdentifier, UnknownShardError } from '@framework/core';
import { MemoryAccess, MemoryDeliveryStore } from '@framework/testing/memory';
import { describe, expect, test } from 'vitest';
import { DeliveryOperator, type HandlerContext } from '../src/index.js';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf, operatorOf, shard } from './delivery-bench.js';

describe('a handler that is renamed', () => {
  test('shares its state with the version under its old name while both run, and after a rollback', async () => {
    const bench = new DeliveryBench();
    const keys: unknown[] = [];
    let version = 0;
    const commit = async (): Promise<void> => {
      version++;
      for (const model of ['a', 'b', 'c', 'd']) bench.database.commit(deposited(model, version));
      await bench.clock.advance(12_000);
    };
    const first = bench.start([older()]);
    await commit();
    const second = bench.start([newer()]);
    await commit();
    await commit();
    await first.delivery.stop();
    await commit();
    await second.delivery.stop();
    const third = bench.start([older()]);
    await commit();
    for (const { executor } of [first, second, third]) {
      keys.push(...executor.executed.map(({ configuration }) => JSON.stringify(configuration)));
    }
    // Each event has one key, that of the permanent id, even if a call was repeated by another process.
    expect(new Set(keys).size).toBe(20);
    expect([first, second, third].every(({ executor }) => executor.executed.length > 0)).toBe(true);
    expect([...bench.database.handlers.keys()]).toEqual(['credit-v1']);
  });

  test('is refused when its names belong to two handlers, and the awaited start rejects', async () => {
    const bench = new DeliveryBench();
    const before = bench.start([handlerOf({ name: 'one' }), handlerOf({ name: 'two' })]);
    await before.delivery.started();
    const both = bench.start([handlerOf({ name: 'three', aliases: ['one', 'two'] })]);
    const refused: unknown = await both.delivery.started().catch((error: unknown) => error);
    expect(FrameworkError.is(refused) && refused.code).toBe('handler-names');
    expect(both.errors).toEqual([refused]);
  });

  test('protects its events from a new handler with its old name, which is refused', async () => {
    const bench = new DeliveryBench();
    const renamed = bench.start([handlerOf({ name: 'settle', aliases: ['complete'] })]);
    await renamed.delivery.started();
    const settle = handlerOf({ name: 'settle' });
    const complete = handlerOf({ name: 'complete', aliases: ['finish'] });
    const both = bench.start([settle, complete]);
    const refused: unknown = await both.delivery.started().catch((error: unknown) => error);
    expect(FrameworkError.is(refused) && refused.code).toBe('handler-names');
    expect(both.errors).toEqual([refused]);
    expect(bench.database.names.has('finish')).toBe(false);
    bench.database.commit(deposited('a', 1));
    const next = handlerOf({ name: 'complete-transfer' });
    bench.start([settle, next]);
    await Promise.all([renamed.delivery.stop(), bench.clock.advance(30_000)]);
    expect([settle.seen, complete.seen, next.seen]).toEqual([['a1'], [], ['a1']]);
  });
});

describe('processes with different handlers', () => {
  test('each deliver all events to their own handlers', async () => {
    const bench = new DeliveryBench();
    const [mails, books, others] = [
      handlerOf({ name: 'mails' }),
      handlerOf({ name: 'books' }),
      handlerOf({ name: 'books' }),
    ];
    bench.start([mails]);
    bench.start([books]);
    bench.start([others]);
    await bench.clock.advance(12_000);
    const models = ['a', 'b', 'c', 'd'];
    for (const model of models) bench.database.commit(deposited(model, 1));
    await bench.clock.advance(2_000);
    expect(mails.seen.toSorted()).toEqual(models.map((model) => `${model}1`));
    expect([...books.seen, ...others.seen].toSorted()).toEqual(models.map((model) => `${model}1`));
    expect(books.seen).toHaveLength(2);
  });
});

describe('processes that know different shards', () => {
  const other = ShardIdentifier.of(1, 0);
  const models = ['a', 'b', 'c', 'd'];
  const ids = models.map((model) => `${model}1`);

  test('leave events to a process with the needed shard, and take over from it', async () => {
    const bench = new DeliveryBench();
    const sent: string[] = [];
    const lacking = handlerOf({ name: 'send' }, () => {
      throw new UnknownShardError(other);
    });
    const sending = handlerOf({ name: 'send' }, ({ eventId }) => void sent.push(eventId));
    const part = bench.start([lacking]);
    for (const model of models) bench.database.commit(deposited(model, 1));
    await bench.clock.advance(60_000);
    expect(lacking.seen.toSorted()).not.toEqual([]);
    const full = bench.start([sending], {}, undefined, [shard, other]);
    await bench.clock.advance(20_000);
    expect(sent.toSorted()).toEqual(ids);
    const before = lacking.seen.length;
    for (const model of models) bench.database.commit(deposited(model, 2));
    await bench.clock.advance(20_000);
    expect([sent.length, lacking.seen.length]).toEqual([8, before]);
    await Promise.all([full.delivery.stop(), bench.clock.advance(20_000)]);
    expect(new Set(bench.database.leases.map(({ processId }) => processId)).size).toBe(1);
    bench.database.commit(deposited('a', 3));
    await bench.clock.advance(1_000);
    expect(lacking.seen.at(-1)).toBe('a3');
    await Promise.all([part.delivery.stop(), bench.clock.advance(20_000)]);
  });
});

describe('an operator', () => {
  test('can use any of the names of a handler, and gets an error for an unknown name', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    bench.start([handlerOf({ name: 'old' })]);
    await bench.clock.advance(100);
    bench.start([handlerOf({ name: 'new', aliases: ['old'] })]);
    await bench.clock.advance(100);
    await operator.pause('new');
    expect((await operator.lag()).items).toMatchObject([{ handler: 'old', paused: true }]);
    await operator.resume('new');
    const unknown = { code: 'unknown-handler', handler: 'nwe' };
    await expect(operator.pause('nwe')).rejects.toMatchObject(unknown);
    await expect(operator.resume('nwe')).rejects.toMatchObject(unknown);
    await expect(operator.retire('nwe')).rejects.toMatchObject(unknown);
    await expect(operator.findBlocked({ handler: 'nwe' })).rejects.toMatchObject(unknown);
    await expect(operator.replay({ handler: 'nwe' })).rejects.toMatchObject(unknown);
    await expect(operator.skip({ handler: 'nwe' })).rejects.toMatchObject(unknown);
    await expect(operator.skip({ handler: 'nwe' }, { dryRun: true })).rejects.toMatchObject(unknown);
    expect(await operator.replay({ handler: 'new' })).toBe(0);
  });

  test('changes nothing in a database that does not know the handler', async () => {
    const benches = [new DeliveryBench(), new DeliveryBench()] as const;
    benches[0].start([handlerOf({ name: 'one' })]);
    benches[1].start([handlerOf({ name: 'other' })]);
    for (const { clock } of benches) await clock.advance(100);
    const accesses = benches.map(({ database }) => new MemoryAccess(database));
    const deliveries = accesses.map((access) => ({
      store: new MemoryDeliveryStore(access),
      shards: [shard],
      ready: async (): Promise<void> => undefined,
    }));
    await new DeliveryOperator({ deliveries: () => deliveries }).pause('one');
    expect(accesses.map(({ calls }) => calls.get('cursors.setPaused'))).toEqual([1, undefined]);
  });

  test('can retire a handler that no process has any more, if its blocked events are discarded', async () => {
    const bench = new DeliveryBench();
    const operator = operatorOf(bench);
    const failing = handlerOf({ name: 'gone', retry: { attemptsMax: 1 } }, () => {
      throw new Error('no');
    });
    bench.database.commit(deposited('a', 1));
    const { delivery } = bench.start([failing]);
    await bench.clock.advance(2_000);
    await expect(operator.retire('gone')).rejects.toMatchObject({ code: 'handler-in-use' });
    await delivery.stop();
    await expect(operator.retire('gone')).rejects.toMatchObject({ code: 'handler-in-use' });
    await operator.retire('gone', { discardBlocked: true });
    expect((await operator.lag()).items).toEqual([]);
    expect(bench.database.blocked.size).toBe(0);
  });
});

test('a handler is retired only one lease time after its lease has ended, because its process may be late', async () => {
  const bench = new DeliveryBench();
  const operator = operatorOf(bench);
  const store = new MemoryDeliveryStore(new MemoryAccess(bench.database));
  await store.cursors.register({ name: 'one', aliases: [], startFrom: 'now' });
  await store.leases.renew('late', ['one'], 1_000);
  await bench.clock.advance(1_999);
  await expect(operator.retire('one')).rejects.toMatchObject({ code: 'handler-in-use' });
  await bench.clock.advance(1);
  await operator.retire('one');
});

const older = () => handlerOf({ name: 'credit-v1' }, effect);
const newer = () => handlerOf({ name: 'credit-v2', aliases: ['credit-v1'] }, effect);

class CreditAction extends Action<Record<string, never>> {
  async perform(): Promise<void> {}
}

async function effect(_envelope: unknown, context: HandlerContext): Promise<void> {
  await context.execute(CreditAction, {});
}
