import {
  CommitOutcomeUnknownError,
  FrameworkError,
  InvalidParamsError,
  ShardUnavailableError,
  StaleRecordError,
  TransientStorageError,
  UnknownActionError,
  UnknownShardError,
} from '@framework/core';
import { describe, expect, test, vi } from 'vitest';
import { Delivery } from '../src/index.js';
import { deposited } from './account.js';
import { DeliveryBench, gate, handlerOf, shard } from './delivery-bench.js';

const hourMs = 3_600_000;
const unavailable = new ShardUnavailableError(shard, 'no connection could be had');

describe('recording a failure', () => {
  test.each([
    ['an error whose message ends within an emoji', new Error('👍'.slice(0, 1))],
    ['an error whose message throws', Object.defineProperty(new Error(), 'message', { get: () => fail() })],
    [
      'a proxy that refuses everything',
      new Proxy(new Error(), { get: fail, getPrototypeOf: fail, has: fail }),
    ],
    ['undefined', undefined],
    ['an object without a prototype', Object.create(null)],
  ])('does not depend on what was thrown: %s', async (_what, thrown) => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, ({ eventId }) => {
      if (eventId === 'a1') throw thrown;
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('b', 1));
    bench.start([handler]);
    await bench.clock.advance(60_000);
    expect(handler.seen.filter((id) => id === 'a1')).toHaveLength(2);
    const [dead] = bench.database.blockedOf('one');
    expect(dead).toMatchObject({ event: { id: 'a1' }, attempts: 2, dead: true });
    expect(dead!.error!.isWellFormed()).toBe(true);
  });
});

function down(count: number): Error[] {
  return Array.from({ length: count }, () => new Error('down'));
}

function fail(): never {
  throw new Error('refused');
}

describe('an attempt', () => {
  test.each([
    ['a shard is unavailable', unavailable],
    ['a shard is not configured in this process', new UnknownShardError(shard)],
    ['storage failed for a moment', new TransientStorageError(shard, 'a deadlock')],
    ['the outcome of a commit is unknown', new CommitOutcomeUnknownError(shard, 'action-1')],
    ['other executions came first each time', new StaleRecordError('Account', 'a', 1)],
    [
      'an outage is wrapped as a cause',
      new Error('cannot', { cause: new Error('query', { cause: unavailable }) }),
    ],
  ])('is not counted when %s, however long that lasts', async (_when, thrown) => {
    const bench = new DeliveryBench();
    let broken = true;
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, () => {
      if (broken) throw thrown;
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(3 * hourMs);
    expect(bench.database.blockedOf('one')[0]).toMatchObject({ attempts: 0, dead: false });
    expect(failures.every(({ counted, willRetry, attempt }) => !counted && willRetry && attempt === 1)).toBe(
      true,
    );
    // With backoff; after a while, every five seconds.
    expect(handler.seen.length).toBeGreaterThan(2_000);
    expect(handler.seen.length).toBeLessThan(2_200);
    broken = false;
    await bench.clock.advance(7_000);
    expect(handler.seen.slice(-2)).toEqual(['a1', 'a2']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test.each([1, 5, 60])(
    'after an outage of %i minutes is made within five seconds, even if the event failed before the outage',
    async (minutes) => {
      const bench = new DeliveryBench();
      let calls = 0;
      let isDown = true;
      const handler = handlerOf({ name: 'one' }, () => {
        if (++calls <= 5) throw new Error('by itself');
        if (isDown) throw unavailable;
      });
      bench.database.commit(deposited('a', 1));
      bench.start([handler]);
      await bench.clock.advance(minutes * 60_000);
      isDown = false;
      await bench.clock.advance(5_500);
      expect(bench.database.blocked.size).toBe(0);
    },
  );

  test('that fails by itself after a long outage is followed by the same wait as a first failure', async () => {
    const bench = new DeliveryBench();
    let thrown: Error = unavailable;
    const handler = handlerOf({ name: 'one' }, () => {
      throw thrown;
    });
    bench.database.commit(deposited('a', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(hourMs);
    thrown = new Error('by itself');
    await bench.clock.advance(15_000);
    const own = failures.filter(({ counted }) => counted).slice(0, 3);
    expect(own.map(({ retryAfterMs }) => retryAfterMs)).toEqual([500, 750, 1_125]);
  });

  test('after an outage waits no longer than the longest wait after an error', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', retry: { backoffMaxMs: 700 } }, () => {
      throw unavailable;
    });
    bench.database.commit(deposited('a', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(60_000);
    expect(new Set(failures.map(({ retryAfterMs }) => retryAfterMs))).toEqual(new Set([500, 700]));
  });

  test('that fails by itself between outages is counted', async () => {
    const bench = new DeliveryBench();
    const errors = [unavailable, new Error('by itself'), unavailable, unavailable, new Error('by itself')];
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, () => {
      throw errors.shift() ?? new Error('too often');
    });
    bench.database.commit(deposited('a', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(hourMs);
    expect(failures.map(({ attempt, counted, willRetry }) => [attempt, counted, willRetry])).toEqual([
      [1, false, true],
      [1, true, true],
      [2, false, true],
      [2, false, true],
      [2, true, false],
    ]);
    expect(bench.database.blockedOf('one')).toMatchObject([{ attempts: 2, uncounted: 3, dead: true }]);
  });

  test.each([
    ['an unknown action', new UnknownActionError('Nothing')],
    ['invalid params', new InvalidParamsError('Deposit', [{ path: 'amount', message: 'is missing' }])],
    ['a wrapped refusal', new Error('cannot', { cause: new UnknownActionError('Nothing') })],
  ])('is the last one when its error says that another one cannot succeed: %s', async (_what, thrown) => {
    expect(FrameworkError.find(thrown)?.retryable).toBe(false);
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, ({ modelId }) => {
      if (modelId === 'a') throw thrown;
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('b', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(hourMs);
    expect(handler.seen).toEqual(['a1', 'b1']);
    expect(bench.database.blockedOf('one')).toMatchObject([{ attempts: 1, dead: true }]);
    expect(failures).toMatchObject([
      { attempt: 1, counted: true, willRetry: false, retryAfterMs: undefined },
    ]);
  });

  test('is the last one when its error says that another one cannot succeed, even after other failures', async () => {
    const bench = new DeliveryBench();
    const errors = [new Error('by itself'), new UnknownActionError('Nothing')];
    const handler = handlerOf({ name: 'one' }, () => {
      throw errors.shift() ?? new Error('once more');
    });
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    await bench.clock.advance(hourMs);
    expect(handler.seen).toHaveLength(2);
    expect(bench.database.blockedOf('one')).toMatchObject([{ attempts: 2, dead: true }]);
  });

  test('that ends because its process stops is not counted, even if it was the last one', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2, backoffBaseMs: 1 } }, ({ attempt }) => {
      if (attempt === 1) throw new Error('once');
      return new Promise(() => undefined);
    });
    bench.database.commit(deposited('a', 1));
    const { delivery } = bench.start([handler]);
    await bench.clock.advance(3_000);
    expect(handler.seen).toHaveLength(2);
    const stopped = delivery.stop({ timeoutMs: 5_000 });
    await bench.clock.advance(15_000);
    await stopped;
    expect(bench.database.blockedOf('one')).toMatchObject([{ attempts: 1, dead: false }]);
    const next = handlerOf({ name: 'one', retry: { attemptsMax: 2 } });
    bench.start([next]);
    await bench.clock.advance(3_000);
    expect(next.seen).toEqual(['a1']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('that ends because its lease was lost is not counted, even if the database is down meanwhile', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2, backoffBaseMs: 1 } }, ({ attempt }) => {
      if (attempt === 1) throw new Error('once');
      return hold.opened;
    });
    bench.database.commit(deposited('a', 1));
    const { access } = bench.start([handler], { timeoutMs: 60_000 });
    await bench.clock.advance(3_000);
    expect(handler.seen).toHaveLength(2);
    access.failures.set('leases.renew', down(8));
    access.failures.set('blocked.giveBack', down(3));
    await bench.clock.advance(30_000);
    hold.open();
    await bench.clock.advance(30_000);
    expect(handler.seen).toHaveLength(3);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('is counted once even if the answer to a statement that records it is lost', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 3 } }, () => {
      throw new Error('by itself');
    });
    bench.database.commit(deposited('a', 1));
    const { access } = bench.start([handler]);
    access.lostAnswers.set('blocked.begin', [new Error('the connection was lost'), new Error('again')]);
    access.lostAnswers.set('blocked.fail', [new Error('the connection was lost')]);
    await bench.clock.advance(120_000);
    expect(handler.seen).toHaveLength(3);
    expect(bench.database.blockedOf('one')).toMatchObject([{ attempts: 3, dead: true }]);
  });

  test('is made at once if its date is further away than the longest wait', async () => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' }, ({ attempt }) => {
      if (attempt === 1) throw new Error('once');
    });
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    for (let waits = 0; bench.database.blocked.size === 0 && waits < 100; waits++)
      await bench.clock.advance(10);
    for (const row of bench.database.blocked.values()) row.nextMs += 27 * hourMs;
    await bench.clock.advance(60_000);
    expect(handler.seen).toHaveLength(2);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('that has ended does not end again when only the answer was lost and an operator has replayed the event', async () => {
    const bench = new DeliveryBench();
    let broken = true;
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, () => {
      if (broken) throw new Error('by itself');
    });
    bench.database.commit(deposited('a', 1));
    const { access, store } = bench.start([handler], { storeBackoffBaseMs: 5_000, storeBackoffMaxMs: 5_000 });
    access.lostAnswers.set('blocked.fail', [new Error('the connection was lost')]);
    for (let waits = 0; bench.database.blockedOf('one')[0]?.dead !== true && waits < 100; waits++)
      await bench.clock.advance(50);
    broken = false;
    expect(await store.deadLetters.replay({ handler: 'one' }, { limit: 10 })).toMatchObject({ count: 1 });
    await bench.clock.advance(60_000);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('at a batch counts for none of its events when storage was unavailable', async () => {
    const bench = new DeliveryBench();
    let broken = true;
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, () => {
      if (broken) throw unavailable;
    });
    bench.database.commit(deposited('a', 1), deposited('b', 1), deposited('c', 1));
    bench.start([handler]);
    await bench.clock.advance(hourMs);
    expect(bench.database.blockedOf('one').map(({ attempts, dead }) => [attempts, dead])).toEqual([
      [0, false],
      [0, false],
      [0, false],
    ]);
    broken = false;
    await bench.clock.advance(302_000);
    expect(bench.database.blocked.size).toBe(0);
  });
});

describe('a handler in an endless loop', () => {
  test('makes its event a dead letter, however many processes it stops before that', async () => {
    const bench = new DeliveryBench();
    const seen: string[] = [];
    bench.database.commit(...['a', 'b', 'c', 'd'].map((id) => deposited(id, 1)));
    for (let life = 0; life < 7; life++) {
      const handler = handlerOf({ name: 'one', retry: { attemptsMax: 3 } }, ({ eventId }) => {
        seen.push(eventId);
        // The event loop of the process stands still: nothing is renewed, and nothing is given back.
        if (eventId === 'a1') started.access.kill();
        return eventId === 'a1' ? new Promise(() => undefined) : undefined;
      });
      const started = bench.start([handler]);
      await bench.clock.advance(60_000);
    }
    expect(seen.filter((id) => id === 'a1')).toHaveLength(2 + 3);
    expect(bench.database.blockedOf('one')).toMatchObject([{ event: { id: 'a1' }, attempts: 3, dead: true }]);
    expect(seen).toEqual(expect.arrayContaining(['b1', 'c1', 'd1']));
  });
});

describe('failures', () => {
  test('are reported with handler, event, attempt and error', async () => {
    const bench = new DeliveryBench();
    const error = new Error('no');
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2, backoffBaseMs: 700 } }, () => {
      throw error;
    });
    bench.database.commit(deposited('a', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(60_000);
    const told = { handler: 'one', event: { id: 'a1' }, eventCount: 1, error, counted: true };
    expect(failures).toMatchObject([
      { ...told, attempt: 1, willRetry: true, retryAfterMs: 700 },
      { ...told, attempt: 2, willRetry: false, retryAfterMs: undefined },
    ]);
  });

  test('of the same outage are reported once for each text, and its end is reported once', async () => {
    const bench = new DeliveryBench();
    const { access, errors, recoveries } = bench.start([handlerOf({ name: 'one' })]);
    await bench.clock.advance(60_000);
    const failAll = (error: Error): void => {
      for (const operation of ['log.read', 'leases.renew', 'cursors.load'] as const)
        access.failures.set(
          operation,
          Array.from({ length: 1_000 }, () => error),
        );
    };
    const end = async (): Promise<void> => {
      access.failures.clear();
      await bench.clock.advance(60_000);
    };
    const lost = new TransientStorageError(shard, 'the connection was lost');
    const again = new ShardUnavailableError(shard, 'no connection could be had');
    for (const error of [lost, unavailable, again, lost]) {
      failAll(error);
      await bench.clock.advance(60_000);
    }
    expect([errors, recoveries]).toEqual([[lost, unavailable], []]);
    await end();
    expect([errors, recoveries]).toEqual([[lost, unavailable], [[shard]]]);
    failAll(lost);
    await bench.clock.advance(60_000);
    await end();
    expect([errors.slice(2), recoveries]).toEqual([[lost], [[shard], [shard]]]);
  });

  test('are written to standard error when there is no hook, as are errors of the database', async () => {
    const lines = vi.spyOn(console, 'error').mockReturnValue();
    const bench = new DeliveryBench();
    const { access, store, executor } = bench.process();
    access.failures.set('blocked.fail', [new Error('the database is down')]);
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 2 } }, () => {
      throw new Error('no');
    });
    bench.database.commit(deposited('a', 1));
    const databases = { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] };
    new Delivery({ databases, executor, handlers: [handler], clock: bench.clock }).start();
    await bench.clock.advance(60_000);
    const written = lines.mock.calls.map(([line]) => String(line));
    lines.mockRestore();
    expect(written).toHaveLength(3);
    expect(written[0]).toMatch(
      /Handler one, DepositedEvent a1 of Account a: attempt 1 failed; .* Error: no$/,
    );
    expect(written[1]).toMatch(/Delivery from the database of shard .* continues .*the database is down/);
    expect(written[2]).toMatch(
      /Handler one, DepositedEvent a1 of Account a: attempt 2 failed; the event is a dead letter now, .*Error: no$/,
    );
    expect(written[2]).toMatch(/later events of the model wait.*replay or skip/);
  });

  test('take one line each on standard error, however many lines the error has', async () => {
    const lines = vi.spyOn(console, 'error').mockReturnValue();
    const bench = new DeliveryBench();
    const { store, executor } = bench.process();
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, () => {
      throw new Error('first\r\nsecond\u2028third');
    });
    bench.database.commit(deposited('a', 1));
    const databases = { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] };
    new Delivery({ databases, executor, handlers: [handler], clock: bench.clock }).start();
    await bench.clock.advance(1_000);
    const written = lines.mock.calls.map(([line]) => String(line));
    lines.mockRestore();
    expect(written).toEqual([expect.stringMatching(/Error: first second third$/)]);
  });

  test('are recorded even if the hook that they are reported to throws or rejects', async () => {
    for (const onAttemptFailed of [fail, async () => fail()]) {
      const bench = new DeliveryBench();
      const { store, executor } = bench.process();
      const handler = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, () => {
        throw new Error('no');
      });
      bench.database.commit(deposited('a', 1));
      const databases = { deliveries: () => [{ store, shards: [shard], ready: async () => undefined }] };
      const { clock } = bench;
      new Delivery({ databases, executor, handlers: [handler], clock, onAttemptFailed }).start();
      await bench.clock.advance(1_000);
      expect(bench.database.blockedOf('one')).toMatchObject([{ dead: true }]);
    }
  });
});
