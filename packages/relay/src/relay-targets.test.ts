import { ShardIdentifier, ShardedId } from '@framework/core';
import { slotOf } from '@framework/core/adapter';
import { Delivery, DeliveryOperator, PartialBatchError, RetryLaterError } from '@framework/events';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { type BrokerMessage, type Relay, publishByKey, relay } from './index.js';
import { Counter, CounterIncreasedEvent, Counters } from '../test/counter.js';
import { envelopeOf } from '../test/published.js';
import { ScriptedBroker } from '../test/scripted-broker.js';

/** Counters whose events are relayed to a scripted broker, in batches of up to a hundred. */
async function relayed(made?: (clock: VirtualClock) => ScriptedBroker) {
  const clock = new VirtualClock();
  const counters = new Counters(clock);
  const broker = made?.(clock) ?? new ScriptedBroker({ messagesMax: 100, timeoutMs: 30_000 });
  const publisher = relay({ name: 'to-broker', broker, startFrom: 'beginning', clock });
  const countedOf: string[] = [];
  let failedCount = 0;
  const delivery = new Delivery({
    databases: counters.databases,
    executor: counters.executor,
    handlers: [publisher],
    clock,
    onAttemptFailed: ({ event, counted }) => {
      failedCount++;
      if (counted) countedOf.push(event.modelId);
    },
  });
  delivery.start();
  await clock.advance(1_000);
  const open = (count: number): Promise<readonly ShardedId<Counter>[]> =>
    Promise.all(Array.from({ length: count }, () => counters.open()));
  const operator = new DeliveryOperator(counters.databases);
  const blocked = async () => (await operator.findBlocked({ handler: 'to-broker' })).items;
  return {
    clock,
    counters,
    broker,
    publisher,
    countedOf,
    failedCount: () => failedCount,
    open,
    operator,
    blocked,
  };
}

/** An event of a counter of its own. */
const newEnvelope = () =>
  envelopeOf(new CounterIncreasedEvent(ShardedId.generate(Counter, ShardIdentifier.of(0, 0)), 1));

/** How a relay ends a call: `done`, the ids of the events that use an attempt, or the name of the error. */
async function handle(publisher: Relay, ...envelopes: Parameters<Relay['handleBatch']>[0]) {
  const { signal } = new AbortController();
  try {
    await publisher.handleBatch(envelopes, { signal } as Parameters<Relay['handleBatch']>[1]);
    return 'done';
  } catch (error) {
    if (!(error instanceof PartialBatchError)) return (error as Error).name;
    return error.failures.flatMap((failure) =>
      failure.error instanceof RetryLaterError ? [] : [failure.eventId],
    );
  }
}

function subjectOf({ attributes }: BrokerMessage): string | undefined {
  return attributes['subject'];
}

describe('a target that takes nothing', () => {
  test('is tried less often each time, without an attempt, and gets everything when it is back', async () => {
    const { clock, counters, broker, publisher, countedOf, open, blocked } = await relayed();
    const models = await open(200);
    broker.takesLater = () => ({});
    for (const id of models) await counters.increase(id, 1);
    await clock.advance(120_000);
    // About 16 slots, at most 9 messages each time, every 10 seconds.
    expect(broker.sent.length).toBeLessThan(16 * 9 * 16);
    expect(countedOf).toEqual([]);
    expect(publisher.state).toMatchObject({ kind: 'waiting', lastError: { code: 'broker-unavailable' } });
    expect(publisher.state.lastError?.text).toContain('not now');
    broker.takesLater = () => undefined;
    await clock.advance(15_000);
    expect(broker.published).toHaveLength(200);
    expect(await blocked()).toEqual([]);
  });

  test('costs no row for each model until it has taken nothing for ten seconds', async () => {
    const { clock, counters, broker, open, blocked } = await relayed();
    const models = await open(200);
    await clock.advance(5_000);
    broker.takesLater = () => ({});
    await Promise.all(models.map((id) => counters.increase(id, 1)));
    await clock.advance(8_000);
    expect(await blocked()).toEqual([]);
    await clock.advance(60_000);
    expect((await blocked()).length).toBeGreaterThan(50);
  });

  test.each([
    [
      'takes nothing',
      (broker: ScriptedBroker, isDown: boolean) => (broker.takesLater = () => (isDown ? {} : undefined)),
      400,
      50,
    ],
    // The first model of each slot waits by itself.
    ['cannot be reached', (broker: ScriptedBroker, isDown: boolean) => (broker.isDown = isDown), 16, 10],
  ])(
    'that %s costs few waits and rows for the models that wait, and has everything soon after',
    async (_how, set, rowMax, perSecondMax) => {
      const { clock, counters, broker, countedOf, failedCount, open, operator } = await relayed();
      const models = await open(400);
      set(broker, true);
      for (const id of models) await counters.increase(id, 1);
      await clock.advance(240_000);
      const beforeCount = failedCount();
      await clock.advance(60_000);
      expect((failedCount() - beforeCount) / 60).toBeLessThan(perSecondMax);
      const { items } = await operator.findBlocked({ handler: 'to-broker' }, { limit: 500 });
      expect(items.length).toBeLessThanOrEqual(rowMax);
      set(broker, false);
      await clock.advance(20_000);
      expect(broker.published).toHaveLength(400);
      expect(countedOf).toEqual([]);
    },
  );

  test('keeps its own reason in the state of the relay after a call without messages', async () => {
    const broker = new ScriptedBroker({ messagesMax: 100, timeoutMs: 30_000 });
    broker.takesLater = () => ({});
    const publisher = relay({ name: 'to-broker', broker, clock: new VirtualClock() });
    const batch = [newEnvelope(), newEnvelope()];
    expect(await handle(publisher, ...batch)).toBe('BrokerUnavailableError');
    const sentCount = broker.sent.length;
    expect(await handle(publisher, ...batch)).toBe('BrokerUnavailableError');
    expect(broker.sent).toHaveLength(sentCount);
    expect(publisher.state.lastError?.text).toContain('not now');
  });

  test('gives no turn to batches that wait as a whole', async () => {
    const broker = new ScriptedBroker({ messagesMax: 100, timeoutMs: 30_000 });
    broker.takesLater = () => ({});
    const publisher = relay({ name: 'to-broker', broker, clock: new VirtualClock() });
    for (let slot = 0; slot < 10; slot++)
      expect(await handle(publisher, newEnvelope(), newEnvelope())).toBe('BrokerUnavailableError');
    const { signal } = new AbortController();
    const alone = publisher.handleBatch([newEnvelope()], { signal } as Parameters<Relay['handleBatch']>[1]);
    const { failures } = (await alone.catch((error: unknown) => error)) as PartialBatchError;
    const waitsMs = failures.map(({ error }) => (error as RetryLaterError).afterMs);
    expect(waitsMs).toHaveLength(1);
    expect(Math.max(...waitsMs.map((ms) => ms ?? Infinity))).toBeLessThanOrEqual(2_000);
  });

  test('is sent nothing before the time for which it asks', async () => {
    const { clock, counters, broker, open } = await relayed();
    const models = await open(100);
    broker.takesLater = () => ({ afterMs: 30_000 });
    for (const id of models) await counters.increase(id, 1);
    await clock.advance(2_000);
    const sentAtOnce = broker.sent.length;
    expect(sentAtOnce).toBeLessThanOrEqual(16 * 8);
    await clock.advance(25_000);
    expect(broker.sent).toHaveLength(sentAtOnce);
    broker.takesLater = () => undefined;
    await clock.advance(40_000);
    expect(broker.published).toHaveLength(100);
  });

  test('costs no attempt while it takes every third message and asks for time', async () => {
    const { clock, counters, broker, countedOf, open } = await relayed();
    const models = await open(100);
    broker.takesLater = () => (broker.sent.length % 3 === 0 ? undefined : { afterMs: 1_000 });
    for (const id of models) await counters.increase(id, 1);
    await clock.advance(600_000);
    expect(broker.published).toHaveLength(100);
    expect(countedOf).toEqual([]);
  });

  test('holds up no message for another target, and nothing that was taken is sent again', async () => {
    const { clock, counters, broker, countedOf, open } = await relayed();
    const models = await open(60);
    const isAway = (id: string | undefined): boolean =>
      id !== undefined && models.findIndex(({ value }) => value === id) % 2 === 0;
    broker.targetOf = (message) => (isAway(subjectOf(message)) ? 'away' : 'well');
    broker.takesLater = (message) => (isAway(subjectOf(message)) ? {} : undefined);
    for (let round = 1; round <= 5; round++) {
      for (const id of models) await counters.increase(id, round);
      await clock.advance(1_000);
      expect(broker.published).toHaveLength(30 * round);
    }
    await clock.advance(60_000);
    expect(broker.published).toHaveLength(150);
    expect(countedOf).toEqual([]);
    broker.takesLater = () => undefined;
    await clock.advance(30_000);
    expect(broker.published).toHaveLength(300);
    expect(new Set(broker.published.map(({ id }) => id)).size).toBe(300);
    for (const id of models) expect(broker.firstVersions(id.value)).toEqual([2, 3, 4, 5, 6]);
  });
});

describe('a message that alone is not taken', () => {
  test('uses attempts alone, and holds up only its own model', async () => {
    const { clock, counters, broker, countedOf, open, blocked } = await relayed();
    const models = await open(100);
    const bad = models[0]!.value;
    broker.takesLater = (message) => (subjectOf(message) === bad ? {} : undefined);
    for (let round = 1; round <= 10; round++) {
      for (const id of models) await counters.increase(id, round);
      await clock.advance(1_000);
      expect(broker.published).toHaveLength(99 * round);
    }
    expect(new Set(broker.published.map(({ id }) => id)).size).toBe(990);
    expect(new Set(countedOf)).toEqual(new Set([bad]));
    expect((await blocked()).map(({ event }) => event.modelId)).toEqual([bad]);
    broker.takesLater = () => undefined;
    await clock.advance(3_600_000);
    expect(broker.firstVersions(bad)).toEqual(Array.from({ length: 10 }, (_unused, index) => index + 2));
  });

  test.each([
    [
      'answered that it is not taken now',
      (broker: ScriptedBroker, isBad: (message: BrokerMessage) => boolean) => {
        broker.takesLater = (message) => (isBad(message) ? {} : undefined);
      },
    ],
    [
      'never answered',
      (broker: ScriptedBroker, isBad: (message: BrokerMessage) => boolean) => {
        broker.isLost = isBad;
      },
    ],
  ])('is blamed as well if it is alone in its batch, and %s', async (_how, prepare) => {
    const { clock, counters, broker, countedOf, open } = await relayed();
    const [bad, ...others] = await open(50);
    const other = others.find(({ value }) => slotOf(value, 16) !== slotOf(bad!.value, 16));
    prepare(broker, (message) => subjectOf(message) === bad!.value);
    await counters.increase(bad!, 1);
    await clock.advance(30_000);
    expect(countedOf).toEqual([]);
    for (let round = 1; round <= 40; round++) {
      await counters.increase(other!, round);
      await clock.advance(1_000);
    }
    expect(countedOf).not.toEqual([]);
    expect(new Set(countedOf)).toEqual(new Set([bad!.value]));
    expect(broker.published).toHaveLength(40);
    // Nothing shows any more that others are taken.
    const count = countedOf.length;
    await clock.advance(3_600_000);
    expect(countedOf.length).toBeLessThanOrEqual(count + 1);
  });

  test.each([
    ['is there', (broker: ScriptedBroker) => broker, []],
    ['is away', (broker: ScriptedBroker) => (broker.isDown = true), 'BrokerUnavailableError'],
    [
      'throws at once',
      (broker: ScriptedBroker) => {
        broker.ping = () => {
          throw new Error('not connected');
        };
      },
      'BrokerUnavailableError',
    ],
  ])('waits alone beside another one without an answer if the broker %s', async (_is, prepare, end) => {
    const broker = new ScriptedBroker({ messagesMax: 100, timeoutMs: 30_000 });
    broker.failsCall = () => true;
    prepare(broker);
    const publisher = relay({ name: 'to-broker', broker, clock: new VirtualClock() });
    const batch = [newEnvelope(), newEnvelope()];
    for (let call = 1; call <= 30; call++)
      expect(await handle(publisher, ...batch)).toBe('BrokerUnavailableError');
    await handle(publisher, ...batch);
    expect(await handle(publisher, ...batch)).toEqual(end);
  });

  test.each([1, 20])('does not hold up its slot for ever, among %i models', async (count) => {
    const { clock, counters, broker, countedOf, open } = await relayed();
    const models = await open(16 * 2 * (count + 2));
    const bad = models[0]!;
    const others = models.slice(1).filter(({ value }) => slotOf(value, 16) === slotOf(bad.value, 16));
    const together = [bad, ...others.slice(1, count)];
    // One connection carries the whole call, and breaks.
    broker.failsCall = (messages) => messages.some((message) => subjectOf(message) === bad.value);
    await Promise.all(together.map((id) => counters.increase(id, 1)));
    await clock.advance(1_000);
    await counters.increase(others[0]!, 1);
    await clock.advance(300_000);
    expect(broker.published).toHaveLength(count);
    for (let round = 2; round <= 40; round++) {
      await counters.increase(others[0]!, round);
      await clock.advance(5_000);
    }
    expect(new Set(countedOf)).toEqual(new Set([bad.value]));
    expect(broker.published).toHaveLength(count + 39);
  });

  test.each([
    ['all slots', 80, 600_000],
    ['one slot', 40, 270_000],
  ])(
    'does not keep its target from others, even if many fail at once, in %s',
    async (where, badCount, totalMaxMs) => {
      const { clock, counters, broker, countedOf, open } = await relayed();
      const models = await open(where === 'one slot' ? 16 * 80 : badCount + 20);
      const chosen = models.filter(
        ({ value }) => where !== 'one slot' || slotOf(value, 16) === slotOf(models[0]!.value, 16),
      );
      const [bad, good] = [chosen.slice(0, badCount), chosen.slice(badCount, badCount + 10)];
      const isBad = new Set(bad.map(({ value }) => value));
      broker.takesLater = (message) => (isBad.has(subjectOf(message) ?? '') ? {} : undefined);
      for (const id of bad) await counters.increase(id, 1);
      const waitsMs: number[] = [];
      for (let round = 1; round <= 120; round++) {
        const beforeCount = broker.published.length;
        for (const id of good) await counters.increase(id, round);
        const begunMs = clock.elapsedMs();
        while (broker.published.length < beforeCount + good.length && clock.elapsedMs() - begunMs < 60_000)
          await clock.advance(100);
        waitsMs.push(clock.elapsedMs() - begunMs);
        await clock.advance(500);
      }
      // Until each of the others has been tried, they look like an outage.
      expect(waitsMs.reduce((sum, ms) => sum + ms, 0)).toBeLessThan(totalMaxMs);
      expect(Math.max(...waitsMs.slice(-60))).toBeLessThanOrEqual(2_000);
      expect(new Set(countedOf)).toEqual(isBad);
    },
  );

  test('does not keep its target from others although it is asked to wait each time', async () => {
    const { clock, counters, broker, open } = await relayed();
    const models = await open(20);
    const bad = models[0]!.value;
    broker.takesLater = (message) => (subjectOf(message) === bad ? { afterMs: 1_000 } : undefined);
    await counters.increase(models[0]!, 1);
    const waitsMs: number[] = [];
    for (let round = 1; round <= 25; round++) {
      for (const id of models.slice(1)) await counters.increase(id, round);
      const begunMs = clock.elapsedMs();
      while (broker.published.length < 19 * round && clock.elapsedMs() - begunMs < 60_000)
        await clock.advance(100);
      waitsMs.push(clock.elapsedMs() - begunMs);
      await clock.advance(500);
    }
    expect(waitsMs.reduce((sum, ms) => sum + ms, 0)).toBeLessThan(15_000);
    expect(Math.max(...waitsMs.slice(-15))).toBeLessThanOrEqual(2_000);
  });

  test.each([1, 30])(
    'comes after the time asked for, and then waits alone, among %i others',
    async (count) => {
      const { clock, counters, broker, publisher, countedOf, open, blocked } = await relayed();
      const [bad, ...others] = await open(count + 1);
      const badAtMs: number[] = [];
      broker.takesLater = (message) => {
        if (subjectOf(message) !== bad!.value) return undefined;
        badAtMs.push(clock.elapsedMs());
        return { afterMs: 20_000 };
      };
      await counters.increase(bad!, 1);
      await clock.advance(1_000);
      for (let round = 1; badAtMs.length < 3; round++) {
        for (const id of others) await counters.increase(id, round);
        await clock.advance(1_000);
      }
      expect(publisher.state).toMatchObject({ lastError: { code: 'message-failed' } });
      // None is taken between the next two failures.
      await clock.advance(60_000);
      const beforeCount = broker.published.length;
      for (let round = 1; round <= 30; round++) {
        for (const id of others) await counters.increase(id, round);
        await clock.advance(1_000);
        expect(broker.published).toHaveLength(beforeCount + count * round);
      }
      const gapsMs = badAtMs.slice(1).map((ms, index) => ms - badAtMs[index]!);
      expect(gapsMs.length).toBeGreaterThanOrEqual(5);
      expect(Math.min(...gapsMs)).toBeGreaterThanOrEqual(20_000);
      expect(countedOf).toEqual([]);
      expect(await blocked()).toMatchObject([{ attempts: 0, dead: false }]);
    },
  );

  test('is blamed as well if its whole call fails, with new ones in it', async () => {
    const { clock, broker, publisher } = await relayed();
    const bad = newEnvelope();
    broker.failsCall = (messages) => messages.some(({ id }) => id === bad.eventId);
    const handled: unknown[] = [];
    for (let round = 0; round < 4; round++) {
      handled.push(await handle(publisher, bad, newEnvelope()));
      await clock.advance(11_000);
      expect(await handle(publisher, newEnvelope())).toBe('done');
    }
    expect(handled.slice(0, 2)).toEqual(['BrokerUnavailableError', 'BrokerUnavailableError']);
    expect(handled.at(-1)).toEqual([bad.eventId]);
  });

  test('is not blamed for a failure while its target comes back', async () => {
    const { clock, counters, broker, countedOf, open } = await relayed();
    const models = await open(100);
    for (let outage = 1; outage <= 3; outage++) {
      broker.takesLater = () => ({});
      for (const id of models) await counters.increase(id, outage);
      await clock.advance(5_000);
      // It takes some messages, and then nothing for a while.
      let takenCount = 0;
      broker.takesLater = () => (takenCount++ < 10 ? undefined : {});
      await clock.advance(5_000);
      broker.takesLater = () => undefined;
      await clock.advance(30_000);
      expect(broker.published).toHaveLength(100 * outage);
    }
    expect(countedOf).toEqual([]);
  });
});

/** A broker that takes its time for each message, and leaves it to the relay when a call is over. */
class SlowBroker extends ScriptedBroker {
  readonly #clock: VirtualClock;
  readonly #msOf: (message: BrokerMessage) => number;

  readonly #concurrency: number | undefined;

  constructor(clock: VirtualClock, msOf: (message: BrokerMessage) => number, concurrency?: number) {
    super({ messagesMax: 100, timeoutMs: 2_000 });
    this.#clock = clock;
    this.#msOf = msOf;
    this.#concurrency = concurrency;
  }

  override publish(messages: readonly BrokerMessage[], signal: AbortSignal) {
    const publishOne = async (message: BrokerMessage): Promise<void> => {
      await this.#clock.sleep(this.#msOf(message), signal);
      signal.throwIfAborted();
      this.sent.push(message.id);
      this.published.push(message);
    };
    const targetOf = (message: BrokerMessage) => this.targetOf?.(message) ?? '';
    const concurrency = this.#concurrency ?? messages.length;
    return publishByKey(messages, signal, publishOne, { concurrency, targetOf });
  }
}

/** Confirms all messages of a call together, after some seconds, or never if it contains a certain one. */
class BulkBroker extends ScriptedBroker {
  readonly #clock: VirtualClock;
  bad = '';

  constructor(clock: VirtualClock) {
    super({ messagesMax: 100, timeoutMs: 10_000 });
    this.#clock = clock;
  }

  override async publish(messages: readonly BrokerMessage[], signal: AbortSignal) {
    const isBad = messages.some((message) => subjectOf(message) === this.bad);
    await this.#clock.sleep(isBad ? 3_600_000 : 3_000, signal);
    signal.throwIfAborted();
    this.published.push(...messages);
    return messages.map(() => ({ kind: 'confirmed' }) as const);
  }
}

describe('a call whose time is over', () => {
  test('leaves what another call of its batch has confirmed before', async () => {
    const { clock, counters, broker, open } = await relayed((made) => new BulkBroker(made));
    const models = await open(100);
    const [bad, ...others] = models.filter(({ value }) => slotOf(value, 16) === slotOf(models[0]!.value, 16));
    (broker as BulkBroker).bad = bad!.value;
    await Promise.all([bad!, ...others].map((id) => counters.increase(id, 1)));
    await clock.advance(1_800_000);
    for (const { value } of others)
      expect(broker.published.filter((each) => subjectOf(each) === value)).toHaveLength(1);
  });

  test('leaves what was confirmed until then confirmed', async () => {
    const { clock, counters, broker, countedOf, open } = await relayed(
      (made) => new SlowBroker(made, () => 60),
    );
    const [model] = await open(1);
    for (let count = 1; count <= 100; count++) await counters.increase(model!, count);
    await clock.advance(30_000);
    expect(broker.firstVersions(model!.value)).toHaveLength(100);
    expect(broker.sent).toHaveLength(100);
    expect(countedOf).toEqual([]);
  });

  test('leaves what was confirmed confirmed, although others have not had their turn', async () => {
    const clock = new VirtualClock();
    const broker = new SlowBroker(clock, (message) => (message.topic === 'slow' ? 500 : 1), 4);
    broker.targetOf = ({ topic }) => topic;
    const publisher = relay({
      name: 'to-broker',
      broker,
      clock,
      timeoutMs: 100,
      topic: ({ eventId }) => topics.get(eventId) ?? '',
    });
    const batch = Array.from({ length: 12 }, newEnvelope);
    const topics = new Map(batch.map(({ eventId }, index) => [eventId, index < 8 ? 'slow' : 'quick']));
    const handling = handle(publisher, batch[8]!, batch[9]!, ...batch.slice(0, 8), batch[10]!);
    await clock.advance(1_000);
    expect(await handling).toEqual([]);
    expect(broker.published.map(({ id }) => id)).toEqual([batch[8]!.eventId, batch[9]!.eventId]);
  });

  test('does not hold up its slot for ever because one message is never answered', async () => {
    let bad = '';
    const { clock, counters, broker, open } = await relayed(
      (made) => new SlowBroker(made, (message) => (subjectOf(message) === bad ? 3_600_000 : 1)),
    );
    const models = await open(80);
    bad = models[0]!.value;
    const others = models.slice(1).filter(({ value }) => slotOf(value, 16) === slotOf(bad, 16));
    await counters.increase(models[0]!, 1);
    await clock.advance(1_000);
    for (const id of others) await counters.increase(id, 1);
    await clock.advance(300_000);
    expect(broker.published).toHaveLength(others.length);
  });
});
