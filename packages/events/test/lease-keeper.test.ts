import { ShardIdentifier, UnknownShardError } from '@framework/core';
import type { LeaseRenewal } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { defaultDeliverySettings } from '../src/index.js';
import { LeaseKeeper } from '../src/slots/lease-keeper.js';
import { deposited } from './account.js';
import { DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

const { leaseMs } = defaultDeliverySettings;
/** One model in each slot. */
const models = ['a', 'b', 'c', 'd'];

test('a keeper that stops gives its slots back after a renewal in progress', async () => {
  const { opened, open } = gate();
  const done: string[] = [];
  const keeper = new LeaseKeeper({
    context: workerContext({ onError: (error) => done.push(String(error)) }),
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        await opened;
        done.push('renewed');
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => void done.push('released'),
    },
    processId: 'one',
    shards: [],
    watch: { now: () => 0, stoodSince: () => false },
    onRenewed: () => done.push('told'),
    onLost: () => undefined,
  });
  void keeper.run(['one']);
  const stopped = keeper.stop();
  open();
  await stopped;
  expect(done).toEqual(['renewed', 'released']);
  expect(keeper.slots).toEqual([]);
});

test('a keeper counts a lease from the request, because the database may have answered at once', async () => {
  const clock = new VirtualClock();
  let renewalCount = 0;
  const keeper = new LeaseKeeper({
    context: workerContext({ clock }),
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        if (renewalCount++ > 0) return new Promise(() => undefined);
        await clock.sleep(5_000);
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => undefined,
    },
    processId: 'one',
    shards: [],
    watch: { now: () => 0, stoodSince: () => false },
    onRenewed: () => undefined,
    onLost: () => undefined,
  });
  void keeper.run(['one']);
  await clock.advance(5_001);
  expect(keeper.slots).toHaveLength(1);
  await clock.advance(leaseMs - 5_000);
  expect(keeper.slots).toEqual([]);
});

test('a process that learns of its lease late calls no handler if the database has given the lease to another one', async () => {
  const bench = new DeliveryBench();
  const [first, second] = [handlerOf({ name: 'one' }), handlerOf({ name: 'one' })];
  const { access } = bench.start([first]);
  await bench.clock.advance(300);
  const late = gate();
  access.delays.set('leases.renew', [late.opened]);
  // Asked after a third of a lease, answered after two thirds of it; later requests do not get through.
  await bench.clock.advance(9_000);
  access.failures.set(
    'leases.renew',
    Array.from({ length: 9 }, () => new Error('the database is out of reach')),
  );
  late.open();
  bench.start([second]);
  await bench.clock.advance(7_500);
  bench.database.commit(...['a', 'b', 'c', 'd', 'e', 'f'].map((model) => deposited(model, 1)));
  await bench.clock.advance(1_500);
  expect(first.seen).toEqual([]);
  expect(second.seen.toSorted()).toEqual(['a1', 'b1', 'c1', 'd1', 'e1', 'f1']);
});

test('a keeper whose renewal fails only after a while renews its leases before they end', async () => {
  const clock = new VirtualClock();
  let renewalCount = 0;
  const keeper = new LeaseKeeper({
    context: workerContext({ clock }),
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        if (++renewalCount === 2) {
          await clock.sleep(leaseMs / 2);
          throw new Error('no connection was free in time');
        }
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => undefined,
    },
    processId: 'one',
    shards: [],
    watch: { now: () => 0, stoodSince: () => false },
    onRenewed: () => undefined,
    onLost: () => undefined,
  });
  void keeper.run(['one']);
  await clock.advance(1);
  const [slot] = keeper.slots;
  await clock.advance(2 * leaseMs);
  expect(slot?.held).toBe(true);
});

describe('an event whose process dies right after a renewal', () => {
  test('is taken over as soon as the lease ends', async () => {
    const bench = new DeliveryBench();
    const { access } = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(leaseMs / 3 - 1_000);
    const survivor = handlerOf({ name: 'one' });
    bench.start([survivor]);
    await bench.clock.advance(1_100);
    access.kill();
    bench.database.commit(...models.map((model) => deposited(model, 1)));
    await bench.clock.advance(leaseMs);
    expect(survivor.seen.toSorted()).toEqual(models.map((model) => `${model}1`));
  });

  test('is handled within ten seconds once its missing shard is configured', async () => {
    const bench = new DeliveryBench();
    const other = ShardIdentifier.of(1, 0);
    const lacking = handlerOf({ name: 'one' }, () => {
      throw new UnknownShardError(other);
    });
    const { access } = bench.start([lacking]);
    bench.database.commit(...models.map((model) => deposited(model, 1)));
    await bench.clock.advance(60_000);
    const renewalCount = access.calls.get('leases.renew');
    while (access.calls.get('leases.renew') === renewalCount) await bench.clock.advance(10);
    access.kill();
    await bench.clock.advance(1_000);
    const whole = handlerOf({ name: 'one' });
    bench.start([whole], {}, undefined, [shard, other]);
    await bench.clock.advance(9_500);
    expect(whole.seen.toSorted()).toEqual(models.map((model) => `${model}1`));
  });
});

/** A keeper whose renewals are answered as a test decides, and its requests with their times. */
function keeperOf(answer: (count: number) => Promise<LeaseRenewal> | LeaseRenewal, stood = false) {
  const clock = new VirtualClock();
  const asked: (readonly [atMs: number, handlers: readonly string[]])[] = [];
  const gained: string[][] = [];
  const errors: unknown[] = [];
  const lost: (readonly [cause: string, ...tokens: string[]])[] = [];
  const keeper = new LeaseKeeper({
    context: workerContext({ clock, onError: (error) => errors.push(error) }),
    leases: {
      renew: async (_processId, handlers) => {
        asked.push([clock.elapsedMs(), handlers]);
        return answer(asked.length);
      },
      release: async () => undefined,
    },
    processId: 'one',
    shards: [],
    watch: {
      now: () => clock.elapsedMs(),
      stoodSince: (instantMs) => stood && clock.elapsedMs() > instantMs,
    },
    onRenewed: (slots) => gained.push(slots.map(({ token }) => token)),
    onLost: (slots, cause) => lost.push([cause, ...slots.map(({ token }) => token)]),
  });
  const tokens = (): readonly string[] => keeper.slots.map(({ token }) => token);
  return { clock, keeper, asked, gained, lost, errors, tokens };
}

function renewal(tokens: readonly string[], fields: Partial<LeaseRenewal> = {}): LeaseRenewal {
  const leases = tokens.map((token, slot) => ({ handler: 'one', slot, token, abandoned: false }));
  return { leases, alone: true, ...fields };
}

describe('a keeper', () => {
  test('renews after a third of a lease, reports new slots once, and drops lost ones', async () => {
    const answers = [renewal(['1', '2']), renewal(['2', '3'], { alone: false }), renewal(['2', '3'])];
    const { clock, keeper, asked, gained, lost, tokens } = keeperOf((count) => answers[count - 1]!);
    void keeper.run(['one']);
    expect(keeper.alone).toBe(false);
    await clock.advance(1);
    expect([keeper.alone, tokens()]).toEqual([true, ['1', '2']]);
    const [first, second] = keeper.slots;
    await clock.advance(leaseMs / 3);
    expect([keeper.alone, tokens()]).toEqual([false, ['2', '3']]);
    expect([first!.held, second!.held]).toEqual([false, true]);
    expect([keeper.get('1'), keeper.get('2')]).toEqual([undefined, second]);
    await clock.advance(leaseMs / 3);
    expect(gained).toEqual([['1', '2'], ['3'], []]);
    expect(asked.map(([atMs]) => Math.round(atMs))).toEqual([0, 3_333, 6_667]);
    // The database shares them among processes, which loses nothing.
    expect(lost).toEqual([]);
  });

  test('asks again right after the slots of another process end, if that is earlier', async () => {
    const { clock, keeper, asked } = keeperOf(() => renewal(['1'], { othersEndInMs: 1_000 }));
    void keeper.run(['one']);
    await clock.advance(1_049);
    expect(asked).toHaveLength(1);
    await clock.advance(1);
    expect(asked).toHaveLength(2);
  });

  test('asks at once when its handlers change, and when the database reports a lost lease', async () => {
    const { clock, keeper, asked, lost, tokens } = keeperOf(() => renewal(['1', '2']));
    void keeper.run(['one']);
    await clock.advance(100);
    keeper.setHandlers(['one', 'other']);
    await clock.advance(0);
    expect(asked).toEqual([
      [0, ['one']],
      [100, ['one', 'other']],
    ]);
    // Several statements may report the same lost lease.
    keeper.drop(['1']);
    keeper.drop(['1']);
    expect(tokens()).toEqual(['2']);
    await clock.advance(0);
    expect(asked).toHaveLength(3);
    keeper.drop([]);
    await clock.advance(0);
    expect(asked).toHaveLength(3);
    expect(lost).toEqual([['taken', '1']]);
  });

  test('takes no lease from an answer that took as long as a lease', async () => {
    const { clock, keeper, gained, tokens } = keeperOf(async () => {
      await clock.sleep(leaseMs);
      return renewal(['1']);
    });
    void keeper.run(['one']);
    await clock.advance(leaseMs + 1);
    expect([tokens(), gained]).toEqual([[], []]);
  });

  test('drops its slots when nothing renews them, and not before', async () => {
    const { clock, keeper, errors, lost, tokens } = keeperOf((count) => {
      if (count > 2) throw new Error('down');
      return renewal(['1', '2']);
    });
    void keeper.run(['one']);
    await clock.advance(leaseMs / 3 + leaseMs - 1);
    expect([tokens(), lost]).toEqual([['1', '2'], []]);
    await clock.advance(2);
    expect([tokens(), lost]).toEqual([[], [['expired', '1', '2']]]);
    expect(errors.length).toBeGreaterThan(1);
  });

  test.each([true, false])(
    'treats gained slots as abandoned after its event loop stopped, but not otherwise (%s)',
    async (stood) => {
      const { clock, keeper } = keeperOf((count) => renewal(count === 1 ? ['1'] : ['1', '2']), stood);
      void keeper.run(['one']);
      await clock.advance(leaseMs / 2);
      expect(keeper.slots.map(({ abandoned }) => abandoned)).toEqual([false, stood]);
    },
  );

  test('that has stopped holds nothing, asks for nothing and waits for nothing', async () => {
    const { clock, keeper, asked, tokens } = keeperOf(() => renewal(['1']));
    const running = keeper.run(['one']);
    await clock.advance(1);
    const [slot] = keeper.slots;
    await keeper.stop();
    await running;
    expect([slot!.held, tokens()]).toEqual([false, []]);
    await clock.advance(2 * leaseMs);
    expect(asked).toHaveLength(1);
  });

  test.each([[[]], [['1']]])(
    'that has stopped leaves no timer behind, whatever it held: %j',
    async (tokens) => {
      const { clock, keeper } = keeperOf(() => renewal(tokens));
      const timers = new Set<() => void>();
      const after = clock.after.bind(clock);
      clock.after = (durationMs, work) => {
        const cancel = after(durationMs, work);
        timers.add(cancel);
        return () => {
          timers.delete(cancel);
          cancel();
        };
      };
      const running = keeper.run(['one']);
      await clock.advance(1);
      expect(timers.size).toBeGreaterThan(0);
      await keeper.stop();
      await running;
      expect(timers.size).toBe(0);
    },
  );

  test('waits longer after each failure in a row, at most a third of a lease', async () => {
    const { clock, keeper, asked } = keeperOf((count) => {
      if (count !== 8) throw new Error('down');
      return renewal(['1']);
    });
    void keeper.run(['one']);
    await clock.advance(20_000);
    const waitsMs = asked.slice(1).map(([atMs], index) => Math.round(atMs - asked[index]![0]));
    expect(waitsMs.slice(0, 9)).toEqual([100, 200, 400, 800, 1_600, 3_200, 3_333, 3_333, 100]);
  });
});

describe('a process', () => {
  test('reports the slots of its handlers that it has lost, once', async () => {
    const bench = new DeliveryBench();
    const { access, losses, delivery } = bench.start([
      handlerOf({ name: 'one' }),
      handlerOf({ name: 'other' }),
    ]);
    await bench.clock.advance(300);
    access.failures.set(
      'leases.renew',
      Array.from({ length: 99 }, () => new Error('the database is out of reach')),
    );
    await bench.clock.advance(2 * leaseMs);
    const all = [0, 1, 2, 3];
    const slotsByHandler = new Map([
      ['one', all],
      ['other', all],
    ]);
    expect(losses).toEqual([{ shards: [shard], cause: 'expired', slotsByHandler }]);
    await delivery.stop();
    expect(losses).toHaveLength(1);
  });

  test('that stops, or shares its slots with another one, has lost nothing', async () => {
    const bench = new DeliveryBench();
    const first = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(300);
    const second = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(leaseMs);
    const stopped = [first.delivery.stop(), second.delivery.stop()];
    await bench.clock.advance(1_000);
    await Promise.all(stopped);
    expect([first.losses, second.losses]).toEqual([[], []]);
  });
});
