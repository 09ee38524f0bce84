import type { Observer } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { deposited } from './account.js';
import { batchHandlerOf, giveAway } from './bench-store.js';
import { DeliveryBench, gate, handlerOf } from './delivery-bench.js';

const timeoutMs = 30_000;
const hang = (): Promise<void> => new Promise(() => undefined);
const large = { payload: { amount: 1, text: 'x'.repeat(2_000) } };
/** With these settings, only the events above are large. */
const small = { readMax: 10, readBytesMax: 10_000 };

describe('the timeout of a call', () => {
  test('ends each call in its own time, and not those that returned before', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const handler = handlerOf({ name: 'one', timeoutMs }, ({ modelId }) =>
      modelId === 'b' ? hold.opened : hang(),
    );
    const { executor, failures } = bench.start([handler]);
    await bench.clock.advance(100);
    for (const model of ['a', 'b', 'c', 'd']) {
      bench.database.commit(deposited(model, 1));
      executor.committed();
      await bench.clock.advance(10_000);
      if (model === 'c') hold.open();
    }
    expect(failures.map(({ event }) => event.id)).toEqual(['a1']);
    await bench.clock.advance(9_999);
    expect(failures.map(({ event }) => event.id)).toEqual(['a1']);
    await bench.clock.advance(2);
    expect(failures.map(({ event }) => event.id)).toEqual(['a1', 'c1']);
    await bench.clock.advance(9_990);
    expect(failures).toHaveLength(2);
    await bench.clock.advance(10);
    expect(failures.at(-1)).toMatchObject({ event: { id: 'd1' }, error: { code: 'handler-timeout' } });
  });

  test('ends calls that began together at the same time, although each timer takes a millisecond', async () => {
    class TimerClock extends VirtualClock {
      override sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
        return super.sleep(Math.max(1, durationMs), signal);
      }
      override after(durationMs: number, work: () => void): () => void {
        return super.after(Math.max(1, durationMs), work);
      }
    }
    class TimerBench extends DeliveryBench {
      override readonly clock = new TimerClock();
    }
    const bench = new TimerBench();
    const abortedMs: number[] = [];
    const handler = handlerOf(
      { name: 'one', timeoutMs, concurrency: 40, retry: { attemptsMax: 1 } },
      (_event, { signal }) => {
        signal.addEventListener('abort', () => abortedMs.push(bench.clock.elapsedMs()));
        return hang();
      },
    );
    bench.database.commit(
      ...Array.from({ length: 40 }, (_item, index) => deposited(`m${index}`, 1, { slot: 0 })),
    );
    bench.start([handler]);
    await bench.clock.advance(timeoutMs + 1_000);
    expect([abortedMs.length, new Set(abortedMs).size]).toEqual([40, 1]);
  });

  test('aborts the signal for a handler that looks at it only afterwards', async () => {
    const bench = new DeliveryBench();
    const hold = gate();
    const signals: AbortSignal[] = [];
    const handler = handlerOf(
      { name: 'one', timeoutMs, retry: { attemptsMax: 1 } },
      async (_event, context) => {
        await hold.opened;
        signals.push(context.signal);
      },
    );
    bench.database.commit(deposited('a', 1));
    bench.start([handler]);
    await bench.clock.advance(timeoutMs + 1_000);
    hold.open();
    await bench.clock.advance(0);
    expect(signals.map(({ aborted, reason }) => [aborted, (reason as { code?: string }).code])).toEqual([
      [true, 'handler-timeout'],
    ]);
  });
});

describe('a call whose slot is lost', () => {
  test('has its signal aborted, but those of other slots continue until their timeout', async () => {
    const bench = new DeliveryBench();
    const signals = new Map<string, AbortSignal>();
    const handler = handlerOf({ name: 'one', timeoutMs }, ({ eventId }, { signal }) => {
      signals.set(eventId, signal);
      return hang();
    });
    bench.database.commit(...['a', 'b', 'c'].map((model) => deposited(model, 1)));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(1_000);
    giveAway(bench, 'one', 0);
    await bench.clock.advance(5_000);
    expect([...signals].map(([id, { aborted }]) => [id, aborted])).toEqual([
      ['a1', true],
      ['b1', false],
      ['c1', false],
    ]);
    await bench.clock.advance(timeoutMs);
    expect(failures.map(({ event }) => event.id)).toEqual(['b1', 'c1']);
  });

  test('leaves room for reading on, and gets its event again when the slot comes back', async () => {
    const bench = new DeliveryBench();
    let isHanging = true;
    const handler = handlerOf({ name: 'one', concurrency: 2 }, () => (isHanging ? hang() : undefined));
    bench.database.commit(deposited('a', 1), deposited('a', 2), deposited('e', 1));
    const { executor } = bench.start([handler], { unfinishedMax: 2, readMax: 1 });
    await bench.clock.advance(1_000);
    expect(handler.seen).toEqual(['a1']);
    isHanging = false;
    const lease = bench.database.leaseOf('one', 0);
    bench.database.hand(lease, lease.processId, false);
    bench.database.commit(deposited('b', 1));
    executor.committed();
    await bench.clock.advance(8_000);
    expect(handler.seen.slice(1).toSorted()).toEqual(['a1', 'a2', 'b1', 'e1']);
  });

  test.each([
    ['were loaded', undefined],
    ['could not be loaded', new Error('the database is down')],
  ])('meanwhile is not made after its large events %s', async (_what, error) => {
    const bench = new DeliveryBench();
    const handler = handlerOf({ name: 'one' });
    bench.database.commit(deposited('a', 1, large));
    const { access, failures } = bench.start([handler], small);
    const hold = gate();
    access.delays.set('log.load', [hold.opened]);
    if (error !== undefined) access.lostAnswers.set('log.load', [error]);
    await bench.clock.advance(500);
    giveAway(bench, 'one', 0);
    await bench.clock.advance(4_000);
    hold.open();
    await bench.clock.advance(1_000);
    expect([handler.seen, failures, bench.database.blocked.size]).toEqual([[], [], 0]);
  });
});

test('a batch with a large event loads only that one, and keeps the order of its events', async () => {
  const bench = new DeliveryBench();
  const handler = batchHandlerOf({ name: 'one' });
  bench.database.commit(deposited('a', 1), deposited('a', 2, large), deposited('a', 3));
  const { store } = bench.start([handler], small);
  const loaded: string[] = [];
  const load = store.log.load.bind(store.log);
  store.log.load = (events) => {
    loaded.push(...events.map(({ id }) => id));
    return load(events);
  };
  await bench.clock.advance(1_000);
  expect([handler.batches, loaded]).toEqual([[['a1', 'a2', 'a3']], ['a2']]);
});

test('a large event that is loaded while too many abandoned calls run is handled later, in order', async () => {
  const bench = new DeliveryBench();
  const hold = gate();
  const other = handlerOf({ name: 'other', timeoutMs: 1_000, retry: { attemptsMax: 1 } }, () => hold.opened);
  const handler = handlerOf({ name: 'one' });
  bench.database.commit(deposited('a', 1, large), deposited('a', 2));
  const { access } = bench.start([other, handler], { ...small, abandonedMax: 1, abandonedForMs: 60_000 });
  const load = gate();
  access.delays.set('log.load', [load.opened, load.opened]);
  await bench.clock.advance(500);
  load.open();
  access.delays.clear();
  await bench.clock.advance(5_000);
  const before = [...handler.seen];
  bench.database.commit(deposited('b', 1));
  await bench.clock.advance(2_000);
  expect(handler.seen).toEqual(before);
  hold.open();
  await bench.clock.advance(2_000);
  expect(handler.seen).toEqual(expect.arrayContaining(['a1', 'a2', 'b1']));
});

/** An observer, and how the calls have ended that it sees. */
function endsSeen() {
  const ended: string[] = [];
  const observer: Observer = {
    observe: (operation, run) => {
      const outcome = run();
      if (operation.kind === 'handle')
        outcome.then(
          () => ended.push('done'),
          (error: { code?: string; message: string }) => ended.push(error.code ?? error.message),
        );
      return outcome;
    },
  };
  return { ended, observer };
}

describe('an observer', () => {
  test('sees a call end with what the handler has returned or thrown', async () => {
    const bench = new DeliveryBench();
    const { ended, observer } = endsSeen();
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const handler = handlerOf({ name: 'one', retry: { attemptsMax: 1 } }, ({ eventId }) => {
      if (eventId === 'a2') throw new Error('mailbox full');
    });
    bench.start([handler], {}, undefined, undefined, bench.clock, { observer });
    await bench.clock.advance(1_000);
    expect(ended).toEqual(['done', 'mailbox full']);
  });

  test('sees a call end when its slot is lost, or its time is over', async () => {
    const bench = new DeliveryBench();
    const { ended, observer } = endsSeen();
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const handler = handlerOf({ name: 'one', timeoutMs, retry: { attemptsMax: 1 } }, hang);
    bench.start([handler], {}, undefined, undefined, bench.clock, { observer });
    await bench.clock.advance(500);
    giveAway(bench, 'one', 1);
    await bench.clock.advance(timeoutMs);
    expect(ended).toEqual(['This process no longer holds slot 1 of handler one', 'handler-timeout']);
  });

  test('gets a list of its own, whose events have no payload', async () => {
    const bench = new DeliveryBench();
    const seen: object[] = [];
    const observer: Observer = {
      observe: (operation, run) => {
        if (operation.kind === 'handle') seen.push(...(operation.events as object[]).splice(0).toReversed());
        return run();
      },
    };
    const handler = batchHandlerOf({ name: 'one' });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    bench.start([handler], {}, undefined, undefined, bench.clock, { observer });
    await bench.clock.advance(500);
    expect(handler.batches).toEqual([['a1', 'a2']]);
    const fields = ['createdDate', 'headers', 'id', 'modelId', 'modelName', 'type'];
    expect(seen.map((event) => Object.keys(event).toSorted())).toEqual([fields, fields]);
  });
});

/** A process that makes no new calls while it has two abandoned ones; each call lasts until a test ends it. */
async function abandoned(...models: readonly string[]) {
  const bench = new DeliveryBench();
  const holds = new Map(models.map((model) => [model, gate()]));
  const handlers = ['one', 'other'].map((name) =>
    handlerOf({ name, timeoutMs: 1_000, retry: { attemptsMax: 1 } }, ({ modelId }) =>
      modelId.startsWith(name) ? holds.get(modelId)!.opened : undefined,
    ),
  );
  bench.database.commit(...models.map((model, slot) => deposited(model, 1, { slot: slot % 4 })));
  const { restarts } = bench.start(handlers, { abandonedMax: 2, abandonedForMs: 10_000 });
  const begunMs = 1_000;
  await bench.clock.advance(begunMs);
  return { bench, restarts, end: (model: string) => holds.get(model)!.open() };
}

describe('the restart of a process', () => {
  test('is requested once, after too many abandoned calls for long enough, with their number for each handler', async () => {
    const { bench, restarts, end } = await abandoned('one-a', 'one-b', 'one-c', 'other-a');
    end('one-c');
    await bench.clock.advance(9_999);
    expect(restarts).toEqual([]);
    await bench.clock.advance(1);
    const countByHandler = new Map([
      ['one', 2],
      ['other', 1],
    ]);
    expect(restarts).toEqual([{ abandonedCount: 3, countByHandler }]);
    await bench.clock.advance(60_000);
    expect(restarts).toHaveLength(1);
  });

  test('is not requested for fewer abandoned calls, or when enough of them end in time', async () => {
    const few = await abandoned('one-a');
    const ending = await abandoned('one-a', 'one-b', 'one-c');
    await ending.bench.clock.advance(9_999);
    for (const model of ['one-a', 'one-b']) ending.end(model);
    for (const { bench } of [few, ending]) await bench.clock.advance(60_000);
    expect([few.restarts, ending.restarts]).toEqual([[], []]);
  });
});

test('a process that stops leaves no timer behind, even if handlers are called or large events loaded', async () => {
  for (const isLoading of [false, true]) {
    const bench = new DeliveryBench();
    const hold = gate();
    bench.database.commit(deposited('a', 1, isLoading ? large : {}));
    const { access, delivery } = bench.start([handlerOf({ name: 'one' }, hang)], small);
    if (isLoading) access.delays.set('log.load', [hold.opened]);
    await bench.clock.advance(1_000);
    const stopped = delivery.stop({ timeoutMs: 1_000 });
    await bench.clock.advance(1_000);
    hold.open();
    await bench.clock.advance(1_000);
    await stopped;
    expect(await bench.clock.wakeNext()).toBe(false);
  }
});
