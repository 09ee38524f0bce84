import { ShardIdentifier, ShardedId } from '@framework/core';
import type { Observer, Operation } from '@framework/core/adapter';
import { Delivery, DeliveryOperator, EventHandlerRegistry } from '@framework/events';
import { VirtualClock } from '@framework/testing';
import { getEventListeners } from 'node:events';
import { describe, expect, test } from 'vitest';

import { type PublishOutcome, type RelayOptions, relay } from './index.js';
import { Counter, CounterIncreasedEvent, Counters } from '../test/counter.js';
import { envelopeOf } from '../test/published.js';
import { ScriptedBroker } from '../test/scripted-broker.js';
import { unhandledRejections } from '../test/unhandled.js';
import { unlessAborted } from './unless-aborted.js';

const increased = new CounterIncreasedEvent(ShardedId.generate(Counter, ShardIdentifier.of(1, 2)), 5);

const isOdd: RelayOptions['filter'] = ({ payload }) => (payload as { by: number }).by % 2 === 1;

const failing: RelayOptions['filter'] = () => {
  throw new Error('no such field');
};

/** Counters whose events are relayed to a scripted broker. */
async function relayed(
  limits = { messagesMax: 1_000, timeoutMs: 30_000 },
  topic?: () => string,
  filter?: RelayOptions['filter'],
) {
  const clock = new VirtualClock();
  const counters = new Counters(clock);
  const broker = new ScriptedBroker(limits);
  const chosen = { ...(topic && { topic }), ...(filter && { filter }) };
  const publisher = relay({ name: 'to-broker', broker, startFrom: 'beginning', ...chosen });
  const failures: string[] = [];
  const { databases, executor } = counters;
  const delivery = new Delivery({
    databases,
    executor,
    handlers: [publisher],
    clock,
    onAttemptFailed: ({ event, counted, willRetry }) =>
      failures.push(
        `${event.modelVersion} ${counted ? 'counted' : 'uncounted'} ${willRetry ? 'retried' : 'dead'}`,
      ),
  });
  delivery.start();
  await clock.advance(1_000);
  const bodies = (): readonly string[] => broker.published.map(({ body }) => new TextDecoder().decode(body));
  return {
    clock,
    counters,
    broker,
    publisher,
    failures,
    bodies,
    operator: new DeliveryOperator(databases),
    delivery,
    databases,
    executor,
  };
}

/** The events of one counter, which the relay has passed, and a broker that has not been called since. */
async function recorded(
  count: number,
  limits?: { readonly messagesMax: number; readonly timeoutMs: number },
) {
  const { clock, counters, broker, databases } = await relayed(limits);
  const id = await counters.open();
  for (let by = 1; by <= count; by++) await counters.increase(id, by);
  await clock.advance(1_000);
  broker.sizes.length = 0;
  const [{ store, shards } = { store: undefined, shards: [] }] = databases.deliveries();
  const { items = [] } = (await store?.operator?.history(id.value, { limit: 10 })) ?? {};
  const publisher = relay({ name: 'to-broker', broker, clock });
  return { clock, broker, publisher, events: items.map(({ event }) => event), shards };
}

describe('a relay', () => {
  test('publishes each event as a CloudEvent', async () => {
    const { clock, counters, broker, bodies } = await relayed();
    const id = await counters.open();
    await counters.increase(id, 5);
    await clock.advance(1_000);
    expect(bodies()).toEqual(['{"by":5}']);
    const [message] = broker.published;
    expect(message).toMatchObject({ topic: 'com.example.Counter', eventType: 'CounterIncreasedEvent' });
    expect(message?.attributes).toEqual({
      specversion: '1.0',
      id: message?.id,
      source: '/com.example/shards/1/2',
      type: 'com.example.CounterIncreasedEvent',
      subject: id.value,
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/) as string,
      datacontenttype: 'application/json',
      modelname: 'Counter',
      modelversion: '2',
      ordinal: '0',
      actionid: expect.any(String) as string,
      actionname: 'IncreaseCounterAction',
      partitionkey: id.value,
    });
  });

  test('passes over events that its filter leaves out, also behind one that fails', async () => {
    const { clock, counters, broker, bodies, operator } = await relayed(undefined, undefined, isOdd);
    const [refused, other] = [await counters.open(), await counters.open()];
    broker.refuses = ({ attributes }) => attributes['subject'] === refused.value;
    for (let by = 1; by <= 4; by++) for (const id of [refused, other]) await counters.increase(id, by);
    await clock.advance(60_000);
    expect(bodies()).toEqual(['{"by":1}', '{"by":3}']);
    const { items } = await operator.lag();
    expect(items).toMatchObject([{ pendingCount: 0, deadCount: 1 }]);
  });

  test('publishes events again with a marker, those of a model in order, and moves nothing', async () => {
    const { clock, counters, broker, publisher, databases, operator } = await relayed();
    const id = await counters.open();
    for (let by = 1; by <= 3; by++) await counters.increase(id, by);
    await clock.advance(1_000);
    const [{ store, shards } = { store: undefined, shards: [] }] = databases.deliveries();
    const events = (await store?.operator?.history(id.value, { limit: 10 }))?.items.map(({ event }) => event);
    const before = broker.published.splice(0);
    broker.refuses = ({ attributes }) => attributes['modelversion'] === '4';
    const outcomes = await publisher.publishAgain(events ?? [], { shards, marker: 'change-1' });
    expect(outcomes.map(({ kind }) => kind)).toEqual(['confirmed', 'confirmed', 'refused']);
    expect(broker.published).toEqual(
      before
        .slice(0, 2)
        .map((message) => ({ ...message, attributes: { ...message.attributes, republished: 'change-1' } })),
    );
    expect((await operator.lag()).items).toMatchObject([{ pendingCount: 0, deadCount: 0 }]);
    broker.isDown = true;
    await expect(publisher.publishAgain(events ?? [], { shards, marker: 'm' })).rejects.toMatchObject({
      code: 'broker-unavailable',
    });
  });

  test('publishes again as many messages at a time as the broker takes, up to the first that is not', async () => {
    const { broker, publisher, events, shards } = await recorded(5, { messagesMax: 2, timeoutMs: 30_000 });
    const kinds = async (): Promise<readonly string[]> =>
      (await publisher.publishAgain(events, { shards, marker: 'm' })).map(({ kind }) => kind);
    expect(await kinds()).toEqual(['confirmed', 'confirmed', 'confirmed', 'confirmed', 'confirmed']);
    expect(broker.sizes).toEqual([2, 2, 1]);
    broker.refuses = ({ attributes }) => attributes['modelversion'] === '4';
    expect(await kinds()).toEqual(['confirmed', 'confirmed', 'refused', 'held-back', 'held-back']);
    broker.failsCall = (messages) => messages[0]?.attributes['modelversion'] === '4';
    expect(await kinds()).toEqual(['confirmed', 'confirmed', 'later', 'later', 'held-back']);
  });

  test('gives up publishing again when the broker does not answer in its time', async () => {
    const { clock, broker, publisher, events, shards } = await recorded(1, {
      messagesMax: 10,
      timeoutMs: 2_000,
    });
    broker.isSilent = true;
    const answer = publisher.publishAgain(events, { shards, marker: 'm' }).catch((error: unknown) => error);
    await clock.advance(5_000);
    expect(await answer).toMatchObject({ code: 'broker-unavailable' });
  });

  test.each(['topic', 'filter'] as const)(
    'refuses to publish an event again whose %s throws, and holds back later ones of its model',
    async (name) => {
      const { broker, events, shards, clock } = await recorded(3);
      const [first, second, third] = events;
      const publisher = relay({
        name: 'to-broker',
        broker,
        clock,
        [name]: ({ modelVersion }: { readonly modelVersion: number }) => {
          if (modelVersion === 3) throw new Error('no such field');
          return name === 'topic' ? 'somewhere' : true;
        },
      });
      const others = [first, second, third, { ...first!, modelId: 'other' }].flatMap((each) => each ?? []);
      expect(await publisher.publishAgain(others, { shards, marker: 'm' })).toEqual([
        { kind: 'confirmed' },
        { kind: 'refused', reason: 'Error: no such field' },
        { kind: 'held-back' },
        { kind: 'confirmed' },
      ]);
    },
  );

  test('refuses to publish an event again whose payload was left out', async () => {
    const { broker, publisher, events, shards } = await recorded(1);
    const large = events.map((event) => ({ ...event, payload: undefined, omitted: true }));
    expect(await publisher.publishAgain(large, { shards, marker: 'm' })).toMatchObject([{ kind: 'refused' }]);
    expect(broker.sizes).toEqual([]);
  });

  test('says without publishing which events it would publish again', async () => {
    const { broker, events, shards } = await recorded(3);
    const wantedBy = (filter: RelayOptions['filter']): readonly (boolean | undefined)[] => {
      const publisher = relay({ name: 'to-broker', broker, ...(filter && { filter }) });
      return events.map((event) => publisher.wants?.(event, shards));
    };
    expect(wantedBy(undefined)).toEqual([undefined, undefined, undefined]);
    expect(wantedBy(isOdd)).toEqual([true, false, true]);
    expect(wantedBy(failing)).toEqual([true, true, true]);
    expect(broker.sizes).toEqual([]);
  });

  test('counts an attempt of an event whose filter throws', async () => {
    const { clock, counters, failures, bodies } = await relayed(undefined, undefined, failing);
    await counters.increase(await counters.open(), 1);
    await clock.advance(1_000);
    expect(bodies()).toEqual([]);
    expect(failures[0]).toBe('2 counted retried');
  });

  test('keeps what is committed while the broker is down, and publishes it in order afterwards', async () => {
    const { clock, counters, broker, publisher, failures, bodies, operator } = await relayed();
    const id = await counters.open();
    broker.isDown = true;
    for (let by = 1; by <= 30; by++) await counters.increase(id, by);
    await clock.advance(60_000);
    expect(bodies()).toEqual([]);
    expect(publisher.state).toMatchObject({
      kind: 'waiting',
      lastError: { code: 'broker-unavailable', text: 'Error: connection refused' },
    });
    expect(new Set(failures.map((text) => text.replace(/^\d+ /, '')))).toEqual(
      new Set(['uncounted retried']),
    );
    expect((await operator.findBlocked({ handler: 'to-broker' })).items).toEqual([]);
    broker.isDown = false;
    await clock.advance(10_000);
    expect(bodies()).toEqual(Array.from({ length: 30 }, (_, index) => `{"by":${index + 1}}`));
    expect(publisher.state.kind).toBe('publishing');
  });

  test('waits for a silent broker as long as necessary, and requests no restart', async () => {
    const { clock, counters, broker, delivery, bodies } = await relayed();
    broker.isSilent = true;
    for (let count = 0; count < 32; count++) await counters.increase(await counters.open(), 1);
    await clock.advance(600_000);
    expect(delivery.restartNeed).toBeUndefined();
    broker.isSilent = false;
    await clock.advance(60_000);
    expect(bodies()).toHaveLength(32);
  });

  test('publishes as many messages at once as before when its process has died', async () => {
    const { clock, counters, operator, databases, executor } = await relayed();
    // The process stops to exist when its clock stops.
    const dying = new VirtualClock();
    const silent = new ScriptedBroker({ messagesMax: 1_000, timeoutMs: 30_000 });
    silent.isSilent = true;
    const publisher = relay({ name: 'after-death', broker: silent, startFrom: 'beginning' });
    new Delivery({ databases, executor, handlers: [publisher], clock: dying }).start();
    await dying.advance(1_000);
    const id = await counters.open();
    for (let by = 1; by <= 30; by++) await counters.increase(id, by);
    await dying.advance(1_000);
    expect(silent.sizes).not.toEqual([]);
    const broker = new ScriptedBroker({ messagesMax: 1_000, timeoutMs: 30_000 });
    const next = relay({ name: 'after-death', broker, startFrom: 'beginning' });
    new Delivery({ databases, executor, handlers: [next], clock }).start();
    await clock.advance(30_000);
    expect(broker.sizes).toEqual([30]);
    expect((await operator.findBlocked({ handler: 'after-death' })).items).toEqual([]);
  });

  test('passes a broker no more messages at once than it takes', async () => {
    const { clock, counters, broker } = await relayed({ messagesMax: 5, timeoutMs: 30_000 });
    const id = await counters.open();
    broker.isDown = true;
    for (let by = 1; by <= 12; by++) await counters.increase(id, by);
    await clock.advance(1_000);
    broker.isDown = false;
    await clock.advance(10_000);
    expect(Math.max(...broker.sizes)).toBe(5);
    expect(broker.published).toHaveLength(12);
  });

  test('turns a message that the broker refuses into a dead letter, and publishes those of other models', async () => {
    const { clock, counters, broker, failures, bodies, operator } = await relayed();
    const [bad, good] = [await counters.open(), await counters.open()];
    broker.refuses = ({ attributes, body }) =>
      attributes['subject'] === bad.value && new TextDecoder().decode(body) === '{"by":2}';
    for (let by = 1; by <= 3; by++) {
      await counters.increase(bad, by);
      await counters.increase(good, by);
    }
    await clock.advance(5_000);
    expect(bodies().toSorted()).toEqual(['{"by":1}', '{"by":1}', '{"by":2}', '{"by":3}']);
    expect(failures).toEqual(['3 counted dead']);
    const { items } = await operator.findBlocked({ handler: 'to-broker' });
    expect(items[0]).toMatchObject({ dead: true, error: expect.stringContaining('too large') as string });
    broker.refuses = () => false;
    await operator.replay({ handler: 'to-broker' });
    await clock.advance(5_000);
    const ofBad = broker.published.filter(({ attributes }) => attributes['subject'] === bad.value);
    expect(ofBad.map(({ attributes }) => attributes['modelversion'])).toEqual(['2', '3', '4']);
  });

  test.each<readonly [string, readonly PublishOutcome[]]>([
    ['says nothing about it', []],
    ['holds it back, although nothing was refused', [{ kind: 'held-back' }]],
  ])('publishes a message again if the broker %s', async (_what, outcomes) => {
    const { clock, counters, broker, bodies, publisher } = await relayed();
    broker.answers = () => outcomes;
    await counters.increase(await counters.open(), 7);
    await clock.advance(5_000);
    expect(bodies()).toEqual([]);
    expect(publisher.state.kind).toBe('waiting');
    broker.answers = undefined;
    await clock.advance(10_000);
    expect(bodies()).toEqual(['{"by":7}']);
  });

  test('does not blame the broker for a call that ends because its process stops', async () => {
    const { clock, counters, broker, publisher, databases, executor, delivery } = await relayed();
    broker.isSilent = true;
    for (let count = 0; count < 32; count++) await counters.increase(await counters.open(), 1);
    await clock.advance(1_000);
    const other = new ScriptedBroker({ messagesMax: 1_000, timeoutMs: 30_000 });
    const second = relay({ name: 'to-broker', broker: other, startFrom: 'beginning' });
    new Delivery({ databases, executor, handlers: [second], clock }).start();
    await clock.advance(1_000);
    const stopped = delivery.stop({ timeoutMs: 5_000 });
    await clock.advance(15_000);
    await stopped;
    expect(other.published).not.toEqual([]);
    expect(publisher.state).toMatchObject({ kind: 'idle', lastError: undefined });
  });

  test('does not publish again what a broker had confirmed when its process stopped amid a batch', async () => {
    const { clock, counters, broker, publisher, databases, executor, delivery, operator, failures } =
      await relayed();
    await operator.pause('to-broker');
    const ids = await Promise.all(Array.from({ length: 64 }, () => counters.open()));
    const [silent] = ids;
    broker.ignores = ({ attributes }) => attributes['subject'] === silent?.value;
    for (const id of ids) for (let by = 1; by <= 3; by++) await counters.increase(id, by);
    await operator.resume('to-broker');
    await clock.advance(10_000);
    const stopped = delivery.stop({ timeoutMs: 8_000 });
    await clock.advance(12_000);
    await stopped;
    const other = new ScriptedBroker({ messagesMax: 1_000, timeoutMs: 30_000 });
    const second = relay({ name: 'to-broker', broker: other, startFrom: 'beginning' });
    new Delivery({ databases, executor, handlers: [second], clock }).start();
    await clock.advance(5_000);
    expect(broker.published).toHaveLength(63 * 3);
    expect(other.published.map(({ attributes }) => attributes['subject'])).toEqual(
      Array.from({ length: 3 }, () => silent?.value),
    );
    expect(failures).toEqual([]);
    expect(publisher.state).toMatchObject({ kind: 'publishing', lastError: undefined });
  });

  test('is not discovered among the handlers, where it would have no broker', () => {
    const broker = new ScriptedBroker({ messagesMax: 1, timeoutMs: 1 });
    const publisher = relay({ name: 'not-discovered', broker });
    const { handlers } = EventHandlerRegistry.discover(() => publisher);
    expect(handlers).toEqual([]);
    expect(new EventHandlerRegistry([publisher]).handlers).toMatchObject([{ name: 'not-discovered' }]);
  });
});

/** Publishes events of these models, whose topic cannot be made for some of them. */
async function publish(models: readonly (readonly [string, string])[], isBad: (modelId: string) => boolean) {
  const broker = new ScriptedBroker({ messagesMax: 1_000, timeoutMs: 30_000 });
  const topic = ({ modelId }: { readonly modelId: string }): string => {
    if (isBad(modelId)) throw new Error('no topic');
    return 'a.topic';
  };
  const publisher = relay({ name: 'to-broker', broker, topic });
  const envelopes = models.map(([modelName, modelId], index) =>
    envelopeOf(increased, { modelName, modelId, eventId: `e${index}` }),
  );
  const context = { attempt: 1, signal: new AbortController().signal, execute: never };
  const error: unknown = await publisher.handleBatch(envelopes, context).catch((caught: unknown) => caught);
  return { error, publisher, published: broker.published.map(({ id }) => id) };
}

describe('a relay whose messages cannot be made', () => {
  test('leaves out later ones of the same model alone, and says which one failed', async () => {
    const models = [
      ['A', 'bad'],
      ['A', 'good'],
      ['A', 'bad'],
      ['B', 'good'],
    ] as const;
    const { error, published, publisher } = await publish(models, (modelId) => modelId === 'bad');
    expect(published).toEqual(['e1', 'e3']);
    expect(error).toMatchObject({ failures: [{ eventId: 'e0' }], waiting: ['e2'] });
    expect(publisher.state).toMatchObject({ kind: 'publishing', lastError: { code: 'message-refused' } });
  });

  test('publishes all events of the model in order when the messages can be made again', async () => {
    let isBad = true;
    const topic = (): string => {
      if (isBad) throw new Error('no topic');
      return 'a.topic';
    };
    const { clock, counters, bodies, operator } = await relayed(undefined, topic);
    const id = await counters.open();
    for (let by = 1; by <= 3; by++) await counters.increase(id, by);
    await clock.advance(5_000);
    expect(bodies()).toEqual([]);
    isBad = false;
    await operator.replay({ handler: 'to-broker' });
    await clock.advance(5_000);
    expect(bodies()).toEqual(['{"by":1}', '{"by":2}', '{"by":3}']);
  });

  test('tells apart models whose names or ids differ at the end or where they meet', async () => {
    const long = 'x'.repeat(1_000);
    let badCount = 0;
    const models = [
      ['A', 'BC'],
      ['AB', 'C'],
      ['A', `${long}a`],
      ['A', `${long}b`],
    ] as const;
    const { published } = await publish(models, (modelId) => /BC$|a$/.test(modelId) && badCount++ < 2);
    expect(published).toEqual(['e1', 'e3']);
  });
});

describe('a relay to one broker', () => {
  const signal = new AbortController().signal;
  const context = { attempt: 1, signal, execute: never };

  test.each([
    // Delivery waits three seconds longer than the relay.
    [{}, {}, { batchMax: undefined, timeoutMs: 33_000 }],
    [{ messagesMax: 5 }, {}, { batchMax: 5, timeoutMs: 33_000 }],
    [{ timeoutMs: 7 }, {}, { batchMax: undefined, timeoutMs: 3_007 }],
    [{ messagesMax: 5, timeoutMs: 7 }, { timeoutMs: 9 }, { batchMax: 5, timeoutMs: 3_009 }],
    [{}, { timeoutMs: 2 ** 31 - 1 }, { batchMax: undefined, timeoutMs: 2 ** 31 - 1 }],
    [{}, { timeoutMs: -1 }, { batchMax: undefined, timeoutMs: -1 }],
    [{}, { timeoutMs: 1.5 }, { batchMax: undefined, timeoutMs: 1.5 }],
    [{}, { timeoutMs: 2 ** 31 }, { batchMax: undefined, timeoutMs: 2 ** 31 }],
  ])('with the limits %j, which are set to %j, has calls limited to %j', (limits, own, expected) => {
    const { constructor } = relay({ name: 'to-broker', broker: new ScriptedBroker(limits), ...own });
    const { batchMax, timeoutMs } = (constructor as { readonly options?: typeof expected }).options ?? {};
    expect({ batchMax, timeoutMs }).toEqual(expected);
  });

  test.each([0, -1, 1.5, Number.NaN])(
    'is refused if the broker takes %s messages at a time',
    (messagesMax) => {
      const broker = new ScriptedBroker({ messagesMax });
      expect(() => relay({ name: 'to-broker', broker })).toThrow(
        `limits.messagesMax of a broker must be a whole number of at least 1, not ${messagesMax}`,
      );
    },
  );

  test('shows each call of the broker to its observer, also one that fails', async () => {
    const operations: Operation[] = [];
    const observer: Observer = {
      observe: (operation, run) => {
        operations.push(operation);
        return run();
      },
    };
    const broker = new ScriptedBroker({});
    const publisher = relay({ name: 'to-broker', broker, observer });
    await publisher.handleBatch([envelopeOf(increased), envelopeOf(increased)], context);
    broker.isDown = true;
    await expect(publisher.handleBatch([envelopeOf(increased)], context)).rejects.toMatchObject({
      code: 'broker-unavailable',
    });
    expect(operations).toEqual(
      [2, 1].map((messageCount) => ({ kind: 'publish', relay: 'to-broker', messageCount })),
    );
  });

  test('goes on to show its last error after it publishes again', async () => {
    const broker = new ScriptedBroker({});
    const publisher = relay({ name: 'to-broker', broker });
    expect(publisher.state).toEqual({ kind: 'idle', lastError: undefined, sources: [] });
    broker.isDown = true;
    await publisher.handleBatch([envelopeOf(increased)], context).catch(() => undefined);
    expect(publisher.state).toMatchObject({ kind: 'waiting', lastError: { code: 'broker-unavailable' } });
    broker.isDown = false;
    await publisher.handleBatch([envelopeOf(increased)], context);
    expect(publisher.state).toMatchObject({ kind: 'publishing', lastError: { code: 'broker-unavailable' } });
    broker.refuses = () => true;
    await publisher.handleBatch([envelopeOf(increased)], context).catch(() => undefined);
    expect(publisher.state).toMatchObject({ kind: 'publishing', lastError: { code: 'message-refused' } });
  });

  test('leaves no listener at the signals of its calls, however they end', async () => {
    const { signal: ofCaller } = new AbortController();
    const broker = new ScriptedBroker({});
    const publisher = relay({ name: 'to-broker', broker });
    for (let round = 0; round < 20; round++) {
      broker.isDown = round % 2 === 1;
      const call = publisher.handleBatch([envelopeOf(increased)], { ...context, signal: ofCaller });
      await call.catch(() => undefined);
    }
    expect(getEventListeners(ofCaller, 'abort')).toEqual([]);
  });
});

describe('waiting until a signal is aborted', () => {
  const rounds = 50;

  test('ends with the work, or with the reason of the signal if that comes first', async () => {
    const caller = new AbortController();
    expect(await unlessAborted(Promise.resolve('done'), caller.signal)).toBe('done');
    const failed = new Error('failed');
    await expect(unlessAborted(Promise.reject(failed), caller.signal)).rejects.toBe(failed);
    const waiting = unlessAborted(new Promise(() => undefined), caller.signal);
    const reason = new Error('given up');
    caller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await expect(unlessAborted(new Promise(() => undefined), caller.signal)).rejects.toBe(reason);
  });

  test('leaves no listener behind, however it ends', async () => {
    const { signal } = new AbortController();
    for (let round = 0; round < rounds; round++) {
      await unlessAborted(Promise.resolve(), signal);
      await unlessAborted(Promise.reject(new Error('failed')), signal).catch(() => undefined);
    }
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    const caller = new AbortController();
    const waiting = Array.from({ length: rounds }, () =>
      unlessAborted(new Promise(() => undefined), caller.signal).catch(() => undefined),
    );
    expect(getEventListeners(caller.signal, 'abort')).toHaveLength(rounds);
    caller.abort();
    await Promise.all(waiting);
    await unlessAborted(new Promise(() => undefined), caller.signal).catch(() => undefined);
    expect(getEventListeners(caller.signal, 'abort')).toEqual([]);
  });

  test('leaves no rejection behind when the abandoned work fails', async () => {
    const unhandled = unhandledRejections();
    const caller = new AbortController();
    const work = Promise.withResolvers<never>();
    const waiting = unlessAborted(work.promise, caller.signal).catch(() => undefined);
    caller.abort(new Error('given up'));
    await waiting;
    work.reject(new Error('too late'));
    const late = Promise.withResolvers<never>();
    await unlessAborted(late.promise, caller.signal).catch(() => undefined);
    late.reject(new Error('too late'));
    expect(await unhandled()).toEqual([]);
  });
});

async function never(): Promise<never> {
  throw new Error('It executes nothing');
}
