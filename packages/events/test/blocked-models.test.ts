import type { DeadLetters } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';
import { deposited } from './account.js';
import { blockElsewhere } from './bench-store.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

const step = { limit: 100 };

const fail = (): never => {
  throw new Error('no');
};

describe('a handler that throws', () => {
  test('is tried again with backoff, and the later events of the model wait for it', async () => {
    const bench = new DeliveryBench();
    let failures = 2;
    const attempts: number[] = [];
    const handler = handlerOf({ name: 'one' }, ({ eventId, attempt }) => {
      if (eventId !== 'a1') return;
      attempts.push(attempt);
      if (failures-- > 0) fail();
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('b', 1));
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.seen).toEqual(['a1', 'b1']);
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a1' }, attempts: 1 }]);
    await bench.clock.advance(500);
    expect(attempts).toEqual([1, 2]);
    await bench.clock.advance(1_500);
    expect(attempts).toEqual([1, 2, 3]);
    expect(handler.seen).toEqual(['a1', 'b1', 'a1', 'a1', 'a2']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('handles new events without blocking them once nothing is blocked any more', async () => {
    const bench = new DeliveryBench();
    let failures = 1;
    const handler = handlerOf({ name: 'one' }, () => (failures-- > 0 ? fail() : undefined));
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { executor } = bench.start([handler]);
    await bench.clock.advance(5_000);
    const { blocked } = bench.database.writes;
    // One row is added, and deleted.
    expect(blocked).toBe(2);
    bench.database.commit(deposited('a', 3));
    executor.committed();
    await bench.clock.advance(0);
    expect(handler.seen).toEqual(['a1', 'a1', 'a2', 'a3']);
    expect(bench.database.writes.blocked).toBe(blocked);
  });

  test('handles events directly again even if it learns late that events of its slot were blocked', async () => {
    const bench = new DeliveryBench();
    const models = ['a', 'b', 'c', 'd'];
    const failing = new Set(models.map((model) => `${model}1`));
    const one = () =>
      handlerOf({ name: 'one', retry: { backoffMaxMs: 200, attemptsMax: 100 } }, ({ eventId }) => {
        if (failing.has(eventId)) fail();
      });
    const [first, second] = [bench.start([one()]), bench.start([one()])];
    await bench.clock.advance(20_000);
    bench.database.commit(...models.map((model) => deposited(model, 1)));
    first.executor.committed();
    second.executor.committed();
    await bench.clock.advance(1_000);
    const { opened, open } = gate();
    second.access.delays.set('blocked.models', [opened]);
    await first.delivery.stop();
    await bench.clock.advance(5_000);
    expect(second.access.delays.get('blocked.models')).toEqual([]);
    failing.clear();
    await bench.clock.advance(2_000);
    open();
    await bench.clock.advance(5_000);
    expect(bench.database.blocked.size).toBe(0);
    const { blocked } = bench.database.writes;
    bench.database.commit(...models.map((model) => deposited(model, 2)));
    second.executor.committed();
    await bench.clock.advance(0);
    expect(bench.database.writes.blocked).toBe(blocked);
  });

  test('handles events directly again even if its attempt ends after it regained the slot under the same lease', async () => {
    const bench = new DeliveryBench();
    let failures = 1;
    const handler = handlerOf({ name: 'one' }, () => (failures-- > 0 ? fail() : undefined));
    const { store, access, executor } = bench.start([handler], { leaseMs: 3_000 });
    await bench.clock.advance(1_500);
    const { opened, open } = gate();
    const move = store.blocked.move.bind(store.blocked);
    store.blocked.move = (...args) => opened.then(() => move(...args));
    bench.database.commit(deposited('a', 1));
    executor.committed();
    const token = bench.database.token('one', 0);
    const loads = (): number => access.calls.get('cursors.load') ?? 0;
    const before = loads();
    access.delays.set('leases.renew', [bench.clock.sleep(2_800)]);
    await bench.clock.advance(6_000);
    expect(handler.seen).toEqual(['a1', 'a1']);
    // What is being written is awaited before anything is loaded.
    expect([bench.database.token('one', 0), loads()]).toEqual([token, before]);
    open();
    await bench.clock.advance(2_000);
    expect(loads()).toBe(before + 1);
    const { blocked } = bench.database.writes;
    bench.database.commit(deposited('a', 2));
    executor.committed();
    await bench.clock.advance(0);
    expect(handler.seen.at(-1)).toBe('a2');
    expect(bench.database.writes.blocked).toBe(blocked);
  });

  test('makes a dead letter after exactly the allowed attempts, and holds up no other model', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 4 } }, ({ modelId }) =>
      modelId === 'a' ? fail() : undefined,
    );
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    for (let version = 1; version <= 50; version++) bench.database.commit(deposited('b', version));
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.seen.filter((id) => id.startsWith('b'))).toHaveLength(50);
    await bench.clock.advance(60_000);
    expect(handler.seen.filter((id) => id === 'a1')).toHaveLength(4);
    expect(handler.seen).not.toContain('a2');
    expect(bench.database.blockedOf('one')).toMatchObject([
      { event: { id: 'a1' }, attempts: 4, dead: true, error: 'Error: no' },
    ]);
  });

  test('makes a dead letter at once when only one attempt is allowed', async () => {
    const bench = new DeliveryBench();
    bench.database.commit(deposited('a', 1));
    bench.start([handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, fail)]);
    await bench.clock.advance(300);
    expect(bench.database.blockedOf('one')).toMatchObject([{ attempts: 1, dead: true }]);
  });

  test('blocks only its model, not another one with the same id', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, ({ modelName }) => {
      if (modelName !== 'Other') throw new Error('fails');
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    for (const version of [1, 2]) {
      bench.database.commit({ ...deposited('a', version), id: `other${version}`, modelName: 'Other' });
    }
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.seen).toEqual(expect.arrayContaining(['other1', 'other2']));
  });

  test('may do so by accessing an event whose payload does not fit its schema', async () => {
    const bench = new DeliveryBench();
    const amounts: unknown[] = [];
    const handler = handlerOf({ name: 'one' }, ({ event }) => void amounts.push(event.amount));
    bench.database.commit(deposited('a', 1, { payload: { amount: 'many' } }));
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(amounts).toEqual([]);
    expect(bench.database.blockedOf('one')[0]!.error).toContain('amount');
  });

  test('is not held up by blocked events of a handler that the process does not have', async () => {
    const bench = new DeliveryBench();
    let broken = true;
    const one = handlerOf({ name: 'one', retry: { backoffBaseMs: 5_000 } }, ({ modelId }) =>
      broken && modelId === 'a' ? fail() : undefined,
    );
    const elsewhere = handlerOf({ name: 'elsewhere' }, fail);
    const models = Array.from({ length: 200 }, (_item, index) => deposited(`b${index}-`, 1));
    bench.database.commit(...models, deposited('a', 1));
    const { delivery } = bench.start([elsewhere, one]);
    await bench.clock.advance(300);
    await delivery.stop();
    expect(bench.database.blockedOf('elsewhere')).toHaveLength(201);
    broken = false;
    bench.start([one], { dueMax: 1 });
    await bench.clock.advance(10_000);
    expect(bench.database.blockedOf('one')).toEqual([]);
  });
});

/** A process whose handler has given up on a1, with a2 and a3 behind it. */
async function withDeadLetter(): Promise<{
  readonly bench: DeliveryBench;
  readonly seen: readonly string[];
  readonly letters: DeadLetters;
  readonly executor: ReturnType<DeliveryBench['start']>['executor'];
  readonly fix: () => void;
}> {
  const bench = new DeliveryBench();
  let broken = true;
  const seen: string[] = [];
  const each = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, ({ eventId }) => {
    if (broken && eventId === 'a1') fail();
    seen.push(eventId);
  });
  bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('a', 3));
  const { store, executor } = bench.start([each]);
  await bench.clock.advance(10_000);
  expect(seen).toEqual([]);
  return { bench, seen, letters: store.deadLetters, executor, fix: () => (broken = false) };
}

describe('a dead letter', () => {
  test('is tried again after a replay, and the waiting events follow in order', async () => {
    const { bench, seen, letters, fix } = await withDeadLetter();
    fix();
    expect((await letters.replay({ eventId: 'a1' }, step)).count).toBe(1);
    await bench.clock.advance(3_000);
    expect(seen).toEqual(['a1', 'a2', 'a3']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('lets the events behind it continue after a skip', async () => {
    const { bench, seen, letters, executor } = await withDeadLetter();
    expect((await letters.skip({ eventId: 'a1' }, step)).count).toBe(1);
    await bench.clock.advance(3_000);
    expect(seen).toEqual(['a2', 'a3']);
    const { blocked } = bench.database.writes;
    bench.database.commit(deposited('a', 4));
    executor.committed();
    await bench.clock.advance(0);
    expect(seen).toEqual(['a2', 'a3', 'a4']);
    expect(bench.database.writes.blocked).toBe(blocked);
  });

  test('keeps later events in order while it exists', async () => {
    const { bench, seen, letters, executor, fix } = await withDeadLetter();
    bench.database.commit(deposited('a', 4));
    executor.committed();
    await bench.clock.advance(3_000);
    expect(seen).toEqual([]);
    fix();
    await letters.replay({}, step);
    await bench.clock.advance(3_000);
    expect(seen).toEqual(['a1', 'a2', 'a3', 'a4']);
  });
});

describe('a handler that does not return', () => {
  test('holds up no other handler and no other model', async () => {
    const bench = new DeliveryBench();
    const hanging = handlerOf({ name: 'hanging' }, ({ modelId }) =>
      modelId === 'a' ? new Promise(() => undefined) : undefined,
    );
    const other = handlerOf({ name: 'other' });
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const { executor } = bench.start([hanging, other]);
    await bench.clock.advance(300);
    bench.database.commit(deposited('a', 2), deposited('b', 2));
    executor.committed();
    await bench.clock.advance(300);
    expect(other.seen).toEqual(['a1', 'b1', 'a2', 'b2']);
    expect(hanging.seen).toEqual(['a1', 'b1', 'b2']);
  });

  test('has its signal aborted after its timeout, which counts as a failed attempt', async () => {
    const bench = new DeliveryBench();
    const signals: AbortSignal[] = [];
    const handler = handlerOf(
      { name: 'one', timeoutMs: 2_000, retry: { attemptsMax: 2 } },
      (_envelope, { signal }) => {
        signals.push(signal);
        return new Promise(() => undefined);
      },
    );
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    bench.start([handler]);
    await bench.clock.advance(1_900);
    expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
    await bench.clock.advance(200);
    expect(signals[0]!.reason).toMatchObject({ code: 'handler-timeout' });
    expect(bench.database.blockedOf('one').map(({ attempts }) => attempts)).toEqual([1]);
    await bench.clock.advance(5_000);
    expect(signals).toHaveLength(2);
    expect(bench.database.blockedOf('one')).toMatchObject([{ attempts: 2, dead: true }]);
  });

  test('gets no new calls while too many of its abandoned calls are still running', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf(
      { name: 'one', timeoutMs: 1_000, retry: { attemptsMax: 1 } },
      () => hold.opened,
    );
    for (const id of ['a', 'b', 'c', 'd', 'e']) bench.database.commit(deposited(id, 1));
    const { restarts } = bench.start([handler], { abandonedMax: 2, concurrency: 2 });
    await bench.clock.advance(10_000);
    expect(handler.seen).toHaveLength(2);
    expect(restarts).toEqual([]);
    hold.open();
    await bench.clock.advance(1_000);
    expect(handler.seen.toSorted()).toEqual(['a1', 'b1', 'c1', 'd1', 'e1']);
  });

  test('makes its process give its leases back and request a restart, and the next process continues', async () => {
    const bench = new DeliveryBench();
    const healthy: string[] = [];
    const start = (): ReturnType<DeliveryBench['start']> => {
      const retry = { attemptsMax: 10, backoffMaxMs: 300_000 };
      const hanging = handlerOf({ name: 'hanging', retry }, async ({ modelId, eventId }) => {
        if (modelId.startsWith('hang')) await new Promise(() => undefined);
        healthy.push(eventId);
      });
      return bench.start([hanging, handlerOf({ name: 'other' })]);
    };
    const first = start();
    bench.database.commit(...Array.from({ length: 7 }, (_item, index) => deposited(`hang${index}`, 1)));
    await bench.clock.advance(1_800_000);
    expect(first.restarts).toHaveLength(1);
    const { abandonedCount, countByHandler } = first.restarts[0]!;
    expect(abandonedCount).toBeGreaterThanOrEqual(64);
    expect(countByHandler).toEqual(new Map([['hanging', abandonedCount]]));
    expect(first.delivery.restartNeed).toEqual(first.restarts[0]);
    expect(bench.database.leases.every(({ processId }) => processId === undefined)).toBe(true);

    // The process that the supervisor starts next deals with the attempts left behind, and then delivers normally.
    const second = start();
    bench.database.commit(...Array.from({ length: 10 }, (_item, index) => deposited(`well${index}`, 1)));
    await bench.clock.advance(600_000);
    expect(healthy).toHaveLength(10);
    expect(bench.database.blockedOf('hanging').map(({ dead }) => dead)).toEqual(Array(7).fill(true));
    expect(second.restarts).toEqual([]);
  });

  test('does not request a restart while the process is stopping anyway', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, () => new Promise(() => undefined));
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const { delivery, restarts } = bench.start([handler], { abandonedMax: 2 });
    await bench.clock.advance(1_000);
    const stopped = delivery.stop({ timeoutMs: 1_000 });
    await bench.clock.advance(60_000);
    await stopped;
    expect(restarts).toEqual([]);
  });
});

/** A process that has handled `a1`, which is then blocked without its knowledge. */
async function blockedLate(work: (eventId: string, attempt: number) => void) {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'one', retry: { backoffBaseMs: 5_000 } }, ({ eventId, attempt }) =>
    work(eventId, attempt),
  );
  const event = deposited('a', 1);
  bench.database.commit(event);
  const { executor } = bench.start([handler]);
  await bench.clock.advance(2_000);
  expect(handler.seen).toEqual(['a1']);
  blockElsewhere(bench, 'one', event);
  return { bench, handler, executor };
}

describe('a handled event that a late statement blocks', () => {
  test('is found within two leases', async () => {
    const { bench, handler } = await blockedLate(() => undefined);
    await bench.clock.advance(20_000);
    expect(handler.seen).toEqual(['a1', 'a1']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('is found although its model has recovered from an earlier block', async () => {
    const bench = new DeliveryBench();
    let isDown = true;
    const one = (): ReturnType<typeof handlerOf> =>
      handlerOf({ name: 'one', retry: { backoffMaxMs: 1_000 } }, () => {
        if (isDown) fail();
      });
    const event = deposited('a', 1);
    bench.database.commit(event);
    const first = bench.start([one()]);
    await bench.clock.advance(5_000);
    await first.delivery.stop();
    isDown = false;
    const handler = one();
    bench.start([handler]);
    await bench.clock.advance(20_000);
    blockElsewhere(bench, 'one', event);
    await bench.clock.advance(20_000);
    expect(handler.seen).toEqual(['a1', 'a1']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('holds back later events of its model during its next attempt', async () => {
    const { bench, handler, executor } = await blockedLate((eventId, attempt) => {
      if (eventId === 'a1' && attempt === 2) fail();
    });
    await bench.clock.advance(13_000);
    expect(handler.seen).toEqual(['a1', 'a1']);
    bench.database.commit(deposited('a', 2));
    executor.committed();
    await bench.clock.advance(20_000);
    expect(handler.seen).toEqual(['a1', 'a1', 'a1', 'a2']);
    expect(bench.database.blocked.size).toBe(0);
  });
});
