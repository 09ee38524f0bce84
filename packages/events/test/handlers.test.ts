import { AsyncLocalStorage } from 'node:async_hooks';
import {
  Action,
  FrameworkAction,
  FrameworkError,
  type ModelClass,
  ModelEvent,
  UnknownActionError,
} from '@framework/core';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import {
  type AnyEventHandler,
  type BatchEventHandler,
  Delivery,
  type DeliveryOverrides,
  type EventEnvelope,
  type EventHandler,
  type EventHandlerOptions,
  EventHandlerRegistry,
  FrameworkEventHandler,
  type HandlerContext,
} from '../src/index.js';
import { Account, ClosedEvent, DepositedEvent, deposited } from './account.js';
import { DeliveryBench, handlerOf, shard } from './delivery-bench.js';

@FrameworkAction({ name: 'send-note' })
class NotifyAction extends Action<{ readonly text: string }, string> {
  protected async perform(): Promise<string> {
    return 'sent';
  }
}

@FrameworkEventHandler({ name: 'marked', startFrom: 'beginning' })
class MarkedHandler implements EventHandler<DepositedEvent | ClosedEvent> {
  readonly event = [DepositedEvent, ClosedEvent];
  readonly envelopes: EventEnvelope<DepositedEvent | ClosedEvent>[] = [];

  async handle(envelope: EventEnvelope<DepositedEvent | ClosedEvent>): Promise<void> {
    this.envelopes.push(envelope);
  }
}

/** The code of what was thrown. */
function codeOf(work: () => unknown): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return FrameworkError.find(error)?.code;
  }
}

/** The code with which a registry refuses handlers with these names, each followed by its aliases; `undefined` if it accepts them. */
const registryCode = (...names: readonly (readonly [string, ...string[]])[]): string | undefined =>
  codeOf(() => new EventHandlerRegistry(names.map(([name, ...aliases]) => handlerOf({ name, aliases }))));

async function nothing(): Promise<void> {}

describe('a registry', () => {
  test('discovers marked classes', () => {
    const { handlers } = EventHandlerRegistry.discover(
      (handler) => new (handler as new () => AnyEventHandler)(),
    );
    const marked = handlers.find(({ name }) => name === 'marked');
    expect(marked?.handler).toBeInstanceOf(MarkedHandler);
    expect([...marked!.eventClasses!.keys()]).toEqual(['DepositedEvent', 'ClosedEvent']);
  });

  test('refuses two handlers with the same name, even if one is an alias', () => {
    expect(registryCode(['one'], ['two'])).toBeUndefined();
    expect(registryCode(['one'], ['one'])).toBe('invariant-violation');
    expect(registryCode(['one'], ['two', 'one'])).toBe('invariant-violation');
    expect(registryCode([''])).toBe('invariant-violation');
    expect(registryCode(['x'.repeat(100)])).toBeUndefined();
    expect(registryCode(['x'.repeat(101)])).toBe('invariant-violation');
    expect(registryCode(['one', ''])).toBe('invariant-violation');
    expect(registryCode(['one', 'x'.repeat(101)])).toBe('invariant-violation');
  });

  test.each(['half of a pair \ud800', 'a \u0000 within'])(
    'refuses the name %j, which no database can hold',
    (name) => {
      expect(registryCode([name])).toBe('invariant-violation');
      expect(registryCode(['one', name])).toBe('invariant-violation');
    },
  );

  test.each([
    ['the first day of the year 1', '0001-01-01T00:00:00.000Z', undefined],
    ['the last moment of the year 9999', '9999-12-31T23:59:59.999Z', undefined],
    ['a day of the year 0', '0000-12-31T23:59:59.999Z', 'invariant-violation'],
    ['a day of the year 10000', '+010000-01-01T00:00:00.000Z', 'invariant-violation'],
    ['an invalid date', 'the day before yesterday', 'invariant-violation'],
  ])('says before anything runs whether a handler can start at %s', (_what, text, code) => {
    const handler = handlerOf({ name: 'one', startFrom: { time: new Date(text) } });
    expect(codeOf(() => new EventHandlerRegistry([handler]))).toBe(code);
  });

  test.each(['Now', {}, null])('refuses a handler that starts at %j', (start) => {
    const handler = handlerOf({ name: 'one', startFrom: start as 'now' });
    expect(codeOf(() => new EventHandlerRegistry([handler]))).toBe('invariant-violation');
  });

  test.each([
    ['wants no event at all', { event: [], handle: nothing }],
    ['does not say which events it wants', { handle: nothing }],
    ['handles nothing', { event: DepositedEvent }],
  ])('refuses a handler that %s', (_what, members) => {
    class Incomplete {
      readonly parts = members;
    }
    FrameworkEventHandler({ name: 'incomplete' })(Incomplete as unknown as new () => AnyEventHandler);
    const handler = Object.assign(new Incomplete(), members) as unknown as AnyEventHandler;
    expect(codeOf(() => new EventHandlerRegistry([handler]))).toBe('invariant-violation');
  });

  test('refuses two event classes with the same event_type', () => {
    class Other extends ModelEvent<Account> {
      static readonly eventType = 'DepositedEvent';
      static readonly payload = z.object({});
    }
    class OtherHandler implements EventHandler<Other> {
      readonly event = Other;
      async handle(): Promise<void> {}
    }
    FrameworkEventHandler({ name: 'other' })(OtherHandler);
    expect(codeOf(() => new EventHandlerRegistry([handlerOf({ name: 'one' }), new OtherHandler()]))).toBe(
      'invariant-violation',
    );
    class BothHandler implements EventHandler<DepositedEvent | Other> {
      readonly event = [DepositedEvent, Other];
      async handle(): Promise<void> {}
    }
    FrameworkEventHandler({ name: 'both' })(BothHandler);
    expect(codeOf(() => new EventHandlerRegistry([new BothHandler()]))).toBe('invariant-violation');
  });

  test('passes its event classes to the executor, so that no other class can be staged with the same name', () => {
    const claimed: unknown[] = [];
    const { store, executor } = new DeliveryBench().process();
    const claiming = Object.assign(executor, {
      claimEventTypes: (eventClasses: Iterable<unknown>) => void claimed.push(...eventClasses),
    });
    const databases = {
      deliveries: () => [{ store, shards: [shard], ready: async (): Promise<void> => undefined }],
    };
    // A handler of all events has no classes.
    const handlers = [new MarkedHandler(), batchHandler({ name: 'index' })];
    const delivery = (models: readonly ModelClass<unknown>[]): Delivery =>
      new Delivery({ databases, executor: claiming, handlers, models });
    delivery([]);
    expect(claimed).toEqual([DepositedEvent, ClosedEvent]);
    class Purse extends Account {
      static readonly modelName = 'Account';
    }
    expect(() => delivery([Account, Purse])).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }) as Error,
    );
  });

  test('refuses a handler without a name, and says first how a static field declares it', () => {
    class Unmarked extends MarkedHandler {}
    expect(() => new EventHandlerRegistry([new Unmarked()])).toThrow(
      expect.objectContaining({
        code: 'invariant-violation',
        message: expect.stringContaining("add static readonly handlerName = '…', or") as string,
      }) as Error,
    );
  });
});

describe('static fields of a handler', () => {
  class Plain implements EventHandler<DepositedEvent> {
    static readonly handlerName: string = 'plain';
    static readonly options: EventHandlerOptions = { startFrom: 'beginning', retry: { attemptsMax: 3 } };
    readonly event = DepositedEvent;

    async handle(): Promise<void> {}
  }

  test('declare its name and its options without a decorator', () => {
    const [handler] = new EventHandlerRegistry([new Plain()]).handlers;
    expect(handler?.name).toBe('plain');
    expect(handler?.options).toMatchObject({ startFrom: 'beginning', retry: { attemptsMax: 3 } });
  });

  test('may be completed or repeated by the decorator', () => {
    class Marked extends Plain {}
    FrameworkEventHandler({ name: 'plain', retry: { attemptsMax: 3 }, timeoutMs: 5 })(Marked);
    const [handler] = new EventHandlerRegistry([new Marked()]).handlers;
    expect(handler?.options).toMatchObject({
      startFrom: 'beginning',
      retry: { attemptsMax: 3 },
      timeoutMs: 5,
    });
  });

  test('apply where the decorator leaves an option undefined', () => {
    class Marked extends Plain {}
    const options: object = { startFrom: undefined, retry: undefined };
    FrameworkEventHandler({ ...options, name: 'plain', timeoutMs: 5 })(Marked);
    const [handler] = new EventHandlerRegistry([new Marked()]).handlers;
    expect(handler?.options).toEqual({ ...Plain.options, name: 'plain', timeoutMs: 5 });
  });

  test('may hold options that inherit their values', () => {
    class Shared extends Plain {
      static override readonly options = Object.create({
        startFrom: 'beginning',
        retry: Object.create({ attemptsMax: 3 }) as object,
      }) as EventHandlerOptions;
    }
    const [handler] = new EventHandlerRegistry([new Shared()]).handlers;
    expect(handler?.options).toEqual({ ...Plain.options, name: 'plain' });
  });

  test('are enough for a class that is only marked for discovery', () => {
    class Discovered extends Plain {
      static override readonly handlerName = 'discovered';
    }
    FrameworkEventHandler()(Discovered);
    let others = 0;
    const { handlers } = EventHandlerRegistry.discover((handler) =>
      Object.is(handler, Discovered) ? new Discovered() : handlerOf({ name: `other ${others++}` }),
    );
    expect(handlers.map(({ name }) => name)).toContain('discovered');
  });

  test.each([
    ['name', { name: 'other' }],
    ['startFrom', { name: 'plain', startFrom: 'now' }],
    ['retry', { name: 'plain', retry: { attemptsMax: 4 } }],
  ] as const)('are refused when the decorator declares another %s', (option, marked) => {
    class Marked extends Plain {}
    FrameworkEventHandler(marked)(Marked);
    expect(() => new EventHandlerRegistry([new Marked()])).toThrow(
      expect.objectContaining({
        code: 'invariant-violation',
        message: expect.stringContaining(`Marked declares one ${option} in a static field`) as string,
      }) as Error,
    );
  });

  test.each([
    ['that no handler has', { startsFrom: 'beginning' }],
    ['that include the name', { name: 'plain' }],
    ['that are not an object', 'beginning'],
  ])('are refused with options %s', (_what, options) => {
    class Wrong extends Plain {
      static override readonly options = options as EventHandlerOptions;
    }
    expect(codeOf(() => new EventHandlerRegistry([new Wrong()]))).toBe('invariant-violation');
  });
});

test('an envelope contains the typed event and all values of its row', async () => {
  const bench = new DeliveryBench();
  const handler = new MarkedHandler();
  const other = deposited('b', 2, { type: 'ClosedEvent', payload: { reason: 'moved' } });
  bench.database.commit(deposited('a', 1), other, deposited('b', 3, { type: 'UnknownEvent' }));
  bench.start([handler]);
  await bench.clock.advance(300);
  const [first, second] = handler.envelopes;
  expect(handler.envelopes).toHaveLength(2);
  expect(first!.event).toBeInstanceOf(DepositedEvent);
  expect(second!.event).toBeInstanceOf(ClosedEvent);
  expect(first).toMatchObject({
    event: { modelId: 'a', amount: 1 },
    eventId: 'a1',
    eventType: 'DepositedEvent',
    payload: { amount: 1 },
    shard,
    namespace: 'com.example',
    modelId: 'a',
    modelName: 'Account',
    modelVersion: 1,
    ordinal: 0,
    actionId: 'action-a1',
    actionName: 'DepositAction',
    actionParams: { amount: 1 },
    principal: 'alice',
    headers: { 'correlation-id': 'c-1' },
    startedDate: new Date('2026-01-01T00:00:00Z'),
    createdDate: new Date('2026-01-01T00:00:00Z'),
    attempt: 1,
  });
});

/** Runs a handler with its context, for longer than its timeout allows; returns what it executed. */
const run = async (
  work: (context: HandlerContext) => Promise<unknown>,
): Promise<ReturnType<DeliveryBench['start']>['executor']['executed']> => {
  const bench = new DeliveryBench();
  const handler = handlerOf({ name: 'notify', timeoutMs: 1_000 }, async (_envelope, context) => {
    await work(context);
  });
  bench.database.commit(deposited('a', 1));
  const { executor } = bench.start([handler]);
  await bench.clock.advance(1_900);
  return executor.executed;
};

describe('context.execute', () => {
  test('uses a key made of handler, event and action name, for the principal of the event', async () => {
    const executed = await run(async (context) => {
      await context.execute(NotifyAction, { text: 'hello' });
      await context.execute(NotifyAction, { text: 'again' }, { key: 'second', principal: { name: 'bot' } });
    });
    expect(executed).toEqual([
      {
        action: 'NotifyAction',
        principal: { name: 'alice' },
        configuration: {
          idempotencyKey: 'notify/a1/send-note',
          handledEvent: { handler: 'notify', eventId: 'a1', shard },
          headers: { 'correlation-id': 'c-1', 'causation-id': 'a1' },
        },
      },
      {
        action: 'NotifyAction',
        principal: { name: 'bot' },
        configuration: expect.objectContaining({ idempotencyKey: 'notify/a1/send-note/second' }),
      },
    ]);
  });

  test('refuses actions once the handler has been abandoned', async () => {
    const refused: unknown[] = [];
    const executed = await run(async (context) => {
      await new Promise<void>((resolve) => context.signal.addEventListener('abort', () => resolve()));
      await context.execute(NotifyAction, { text: 'late' }).catch((error: unknown) => refused.push(error));
    });
    expect(executed).toEqual([]);
    expect(refused).toMatchObject([{ code: 'handler-timeout' }]);
  });
});

test('a delivery that is started in a request calls its handlers, and the database, outside the context of any request', async () => {
  const request = new AsyncLocalStorage<string>();
  const contexts = new Set<unknown>();
  const bench = new DeliveryBench();
  bench.database.commit(deposited('a', 1), deposited('b', 1));
  const handler = handlerOf({ name: 'one' }, ({ modelId, attempt }) => {
    contexts.add(request.getStore());
    if (modelId === 'b' && attempt === 1) throw new Error('once');
  });
  const { store } = request.run('a request', () => bench.start([handler]));
  const save = store.cursors.save.bind(store.cursors);
  store.cursors.save = (moves) => {
    contexts.add(request.getStore());
    return save(moves);
  };
  await bench.clock.advance(10_000);
  expect(handler.seen).toEqual(['a1', 'b1', 'b1']);
  expect(contexts).toEqual(new Set([undefined]));
});

describe('a new handler', () => {
  test('starts where its startFrom option says', async () => {
    const bench = new DeliveryBench();
    const later = new Date('2026-01-02T00:00:00Z');
    bench.database.commit(deposited('a', 1), deposited('a', 2, { createdDate: later }));
    const handlers = [
      handlerOf({ name: 'all', startFrom: 'beginning' }),
      handlerOf({ name: 'new', startFrom: 'now' }),
      handlerOf({ name: 'since', startFrom: { time: later } }),
    ];
    const { executor } = bench.start(handlers);
    await bench.clock.advance(300);
    bench.database.commit(deposited('a', 3));
    executor.committed();
    await bench.clock.advance(0);
    expect(handlers.map(({ seen }) => seen)).toEqual([['a1', 'a2', 'a3'], ['a3'], ['a2', 'a3']]);
  });

  test('takes over the state that is stored under its old name', async () => {
    const bench = new DeliveryBench();
    const old = handlerOf({ name: 'old', retry: { attemptsMax: 1 } }, ({ modelId }) => {
      if (modelId === 'b') throw new Error('no');
    });
    bench.database.commit(deposited('a', 1), deposited('b', 1));
    const { delivery } = bench.start([old]);
    await bench.clock.advance(300);
    await delivery.stop();
    bench.database.commit(deposited('a', 2), deposited('b', 2));
    const renamed = handlerOf({ name: 'new', aliases: ['old'] });
    bench.start([renamed]);
    await bench.clock.advance(3_000);
    expect(renamed.seen).toEqual(['a2']);
    expect(bench.database.blockedOf('old')).toMatchObject([{ event: { id: 'b1' } }]);
  });
});

function batchHandler(
  options: Parameters<typeof FrameworkEventHandler>[0],
  work: (ids: readonly string[]) => void = () => undefined,
): BatchEventHandler<undefined> & { readonly batches: string[][] } {
  class BenchBatchHandler implements BatchEventHandler<undefined> {
    readonly event = 'all';
    readonly batches: string[][] = [];

    async handleBatch(envelopes: readonly EventEnvelope<undefined>[]): Promise<void> {
      const ids = envelopes.map(({ eventId }) => eventId);
      this.batches.push(ids);
      work(ids);
    }
  }
  FrameworkEventHandler({ startFrom: 'beginning', ...options })(BenchBatchHandler);
  return new BenchBatchHandler();
}

describe('a batch handler', () => {
  test('receives the wanted events of a slot together, and no others', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandler({ name: 'index', batchMax: 3 });
    bench.database.commit(...[1, 2, 3, 4].map((version) => deposited('a', version)), deposited('b', 1));
    bench.start([handler]);
    await bench.clock.advance(300);
    expect(handler.batches).toEqual([['a1', 'a2', 'a3'], ['b1'], ['a4']]);
  });

  test('blocks the events of a failed batch and retries them one by one', async () => {
    const bench = new DeliveryBench();
    const handler = batchHandler({ name: 'index', retry: { attemptsMax: 3 } }, (ids) => {
      if (ids.includes('e1')) throw new Error('no');
    });
    bench.database.commit(deposited('a', 1), deposited('e', 1), deposited('i', 1), deposited('a', 2));
    bench.start([handler]);
    await bench.clock.advance(30_000);
    expect(handler.batches[0]).toEqual(['a1', 'e1', 'i1', 'a2']);
    expect(handler.batches.slice(1).every((batch) => batch.length === 1)).toBe(true);
    expect(bench.database.blockedOf('index')).toMatchObject([
      { event: { id: 'e1' }, attempts: 3, dead: true },
    ]);
    expect(handler.batches.flat().filter((id) => id === 'i1')).toHaveLength(2);
  });

  test.each([
    ['only one attempt is allowed', 1, new Error('no')],
    ['the error says that another attempt cannot succeed', 3, new UnknownActionError('Nothing')],
  ])(
    'makes a dead letter only of the failing event after trying each alone: %s',
    async (_when, attemptsMax, thrown) => {
      const bench = new DeliveryBench();
      const handler = batchHandler({ name: 'index', retry: { attemptsMax } }, (ids) => {
        if (ids.includes('e1')) throw thrown;
      });
      bench.database.commit(deposited('a', 1), deposited('e', 1), deposited('i', 1));
      bench.start([handler]);
      await bench.clock.advance(30_000);
      expect(handler.batches).toHaveLength(1 + 3);
      expect(bench.database.blockedOf('index')).toMatchObject([
        { event: { id: 'e1' }, attempts: 1, dead: true },
      ]);
    },
  );

  test('waits with a failed batch if its options say so, and blocks nothing', async () => {
    const bench = new DeliveryBench();
    let left = 3;
    const handler = batchHandler({ name: 'relay', whenBatchFails: 'wait' }, () => {
      if (left-- > 0) throw new Error('the broker is down');
    });
    bench.database.commit(deposited('a', 1), deposited('a', 2));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(30_000);
    expect(handler.batches).toEqual(Array.from({ length: 4 }, () => ['a1', 'a2']));
    expect(bench.database.writes.blocked).toBe(0);
    expect(failures.map(({ attempt, counted, willRetry }) => [attempt, counted, willRetry])).toEqual(
      [1, 2, 3].map((attempt) => [attempt, false, true]),
    );
  });

  test('waits with the batch for at most ten seconds after its dependency is available again', async () => {
    const bench = new DeliveryBench();
    let down = true;
    const handler = batchHandler({ name: 'relay', whenBatchFails: 'wait' }, () => {
      if (down) throw new Error('the broker is down');
    });
    bench.database.commit(deposited('a', 1));
    const { failures } = bench.start([handler]);
    await bench.clock.advance(3_600_000);
    down = false;
    const failedCount = failures.length;
    const before = handler.batches.length;
    await bench.clock.advance(10_000);
    expect([failures.length, handler.batches.length]).toEqual([failedCount, before + 1]);
  });
});

test('a batch that waits holds up only its own slot, whatever follows it and however much capacity there is', async () => {
  const bench = new DeliveryBench();
  let broken = true;
  const handler = batchHandler(
    { name: 'index', whenBatchFails: 'wait', concurrency: 1, batchMax: 10 },
    (ids) => {
      if (broken && ids.includes('a1')) throw new Error('cannot index');
    },
  );
  const { executor } = bench.start([handler], { readMax: 20, unfinishedMax: 40, unsavedMax: 60 });
  await bench.clock.advance(500);
  for (let version = 1; version <= 200; version++) bench.database.commit(deposited('a', version));
  executor.committed();
  await bench.clock.advance(5_000);
  for (let version = 1; version <= 200; version++) bench.database.commit(deposited('b', version));
  executor.committed();
  await bench.clock.advance(60_000);
  expect(handler.batches.flat().filter((id) => id.startsWith('b'))).toHaveLength(200);
  const tried = handler.batches.filter(([first]) => first === 'a1');
  expect(tried.length).toBeGreaterThan(5);
  expect(new Set(tried.map(String)).size).toBe(1);

  broken = false;
  await bench.clock.advance(300_000);
  const ofFirst = handler.batches.flat().filter((id) => id.startsWith('a'));
  expect([...new Set(ofFirst)]).toEqual(Array.from({ length: 200 }, (_item, index) => `a${index + 1}`));
  expect(bench.database.blocked.size).toBe(0);
});

test.each([
  ['leaseMs', { leaseMs: 1 }],
  ['pollMaxMs', { pollMaxMs: 2 ** 31 }],
  ['batchMax', { batchMax: 1.5 }],
  ['readMax', { readMax: 5 }],
  ['retry.attemptsMax', { retry: { attemptsMax: Infinity } }],
  ['leaseMS', { leaseMS: 5_000 }],
])('the invalid setting %s is refused by its name, even when code passes it', (name, settings) => {
  const options = { databases: { deliveries: () => [] }, handlers: [] };
  const executor = { onCommit: () => () => undefined, execute: () => Promise.reject(new Error('never')) };
  expect(() => new Delivery({ ...options, executor, settings: settings as DeliveryOverrides })).toThrow(
    expect.objectContaining({
      code: 'invalid-configuration',
      faults: [expect.objectContaining({ path: `delivery.${name}` })],
    }) as Error,
  );
});

test('an option that a delivery does not have is refused by its name', () => {
  const executor = { onCommit: () => () => undefined, execute: () => Promise.reject(new Error('never')) };
  const options = { databases: { deliveries: () => [] }, executor, handlers: [], onErrors: () => undefined };
  expect(() => new Delivery(options)).toThrow(
    expect.objectContaining({
      code: 'invalid-configuration',
      faults: [{ path: 'onErrors', message: 'is not an option of Delivery' }],
    }) as Error,
  );
});

test.each([
  ['retry', null],
  ['retry', 5],
  ['retry', 'often'],
  ['retry', [5]],
  ['aliases', 'former-name'],
  ['aliases', { former: true }],
  ['whenBatchFails', 'waits'],
  ['whenBatchFails', true],
])('a handler whose %s is %j is refused', (option, value) => {
  const handler = handlerOf({ name: 'one', [option]: value });
  expect(() => new DeliveryBench().start([handler])).toThrow(
    expect.objectContaining({
      code: 'invariant-violation',
      message: expect.stringContaining(`an invalid ${option}: `),
    }) as Error,
  );
});

test.each([
  ['timeoutMS', { timeoutMS: 5 }],
  ['retry.maxAttempts', { retry: { maxAttempts: 5 } }],
  ['batch, retry.outageBackoffMaxMs', { batch: 1, retry: { outageBackoffMaxMs: 5 } }],
])('a handler that declares %s, which no handler has, is refused with those names', (names, options) => {
  const handler = handlerOf({ name: 'one', ...(options as object) });
  expect(() => new DeliveryBench().start([handler])).toThrow(
    `declares ${names}: a handler has no such option`,
  );
});

test('settings that are not numbers above zero are refused', () => {
  const options = { databases: { deliveries: () => [] }, handlers: [] };
  const executor = { onCommit: () => () => undefined, execute: () => Promise.reject(new Error('never')) };
  expect(codeOf(() => new Delivery({ ...options, executor, settings: { leaseMs: 0 } }))).toBe(
    'invalid-configuration',
  );
  expect(
    codeOf(() => new Delivery({ ...options, executor, settings: { retry: { attemptsMax: NaN } } })),
  ).toBe('invalid-configuration');
});

test('limits of a handler that are not numbers above zero are refused', () => {
  const bench = new DeliveryBench();
  expect(codeOf(() => bench.start([handlerOf({ name: 'one', concurrency: 0 })]))).toBe('invariant-violation');
  expect(codeOf(() => bench.start([handlerOf({ name: 'one', timeoutMs: 2 ** 31 })]))).toBe(
    'invariant-violation',
  );
  expect(codeOf(() => bench.start([handlerOf({ name: 'one', retry: { attemptsMax: 0 } })]))).toBe(
    'invariant-violation',
  );
});
