import { type DeliverableEvent, type Observer, observeWith } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { AbandonedCalls, TurnTime } from '../src/call/call-deadlines.js';
import { HandlerCaller } from '../src/call/handler-caller.js';
import { EventHandlerRegistry } from '../src/handler/event-handler-registry.js';
import { EnvelopeFactory } from '../src/handler/row-envelope.js';
import {
  type AnyEventHandler,
  type BatchEventHandler,
  type EventEnvelope,
  FrameworkEventHandler,
} from '../src/index.js';
import { HeldSlot } from '../src/slots/held-slot.js';
import { DepositedEvent, deposited } from './account.js';
import { gate, handlerOf, shard } from './delivery-bench.js';

const timeoutMs = 30_000;

function callerOf(
  given: AnyEventHandler,
  load: (large: readonly DeliverableEvent[]) => Promise<unknown>,
  observer?: Observer,
) {
  const clock = new VirtualClock();
  const [handler] = new EventHandlerRegistry([given]).handlers;
  const calls = { allowed: true };
  const caller = new HandlerCaller({
    handler: { ...handler!, id: 'one' },
    executor: { execute: () => Promise.reject(new Error('no action is executed')) },
    envelopes: new EnvelopeFactory([shard], []),
    timeoutMs,
    context: { clock, turn: new TurnTime(clock), observe: observeWith(observer) },
    log: { load: async (_handler, large) => (await load(large), large.map(whole)) },
    abandoned: new AbandonedCalls({ max: 10, forMs: 10_000, clock, onRestartNeeded: () => undefined }),
    mayCall: () => calls.allowed,
  });
  return { caller, clock, calls };
}

/** The event with its omitted parts, as it is loaded for a call. */
function whole(event: DeliverableEvent): DeliverableEvent {
  return { ...event, omitted: false, payload: { amount: 1_000 } };
}

function slotOf(slot: number): HeldSlot {
  return new HeldSlot({ handler: 'one', slot, token: `token ${slot}`, abandoned: false });
}

const nothing = (): Promise<void> => Promise.resolve();

test('only the calls for a slot that was lost are abandoned, and the others keep their timeouts', async () => {
  const hold = gate();
  const signals: AbortSignal[] = [];
  const handler = handlerOf({ name: 'one' }, async ({ modelId }, { signal }) => {
    signals.push(signal);
    await (modelId === 'b' ? hold.opened : new Promise(() => undefined));
  });
  const { caller, clock } = callerOf(handler, nothing);
  const lost = slotOf(0);
  const outcomes = [
    caller.call([deposited('a', 1)], 1, lost),
    caller.call([deposited('b', 1)], 1, slotOf(1)),
    caller.call([deposited('c', 1)], 1, slotOf(2)),
  ];
  await clock.advance(1_000);
  caller.drop(new Error('lost'), lost);
  expect(await outcomes[0]).toEqual({ kind: 'dropped' });
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, false, false]);
  hold.open();
  expect(await outcomes[1]).toEqual({ kind: 'done' });
  await clock.advance(timeoutMs - 1_000);
  expect(await outcomes[2]).toMatchObject({ kind: 'failed', error: { code: 'handler-timeout' } });
});

test('an observer sees a call end when nobody waits for it any longer', async () => {
  const ended: unknown[] = [];
  const observer: Observer = {
    observe: (_operation, run) => {
      const outcome = run();
      outcome.then(
        () => ended.push('done'),
        (error: unknown) => ended.push(error),
      );
      return outcome;
    },
  };
  const hung = handlerOf({ name: 'one' }, () => new Promise(() => undefined));
  const { caller, clock } = callerOf(hung, nothing, observer);
  const [late, lost] = [slotOf(0), slotOf(1)];
  const outcomes = [caller.call([deposited('a', 1)], 1, late), caller.call([deposited('b', 1)], 1, lost)];
  const reason = new Error('lost');
  caller.drop(reason, lost);
  await clock.advance(timeoutMs);
  await Promise.all(outcomes);
  expect(ended).toEqual([reason, expect.objectContaining({ code: 'handler-timeout' })]);
});

test('an observer gets a list of its own, whose events have no payload', async () => {
  const received: string[] = [];
  class Batches implements BatchEventHandler<DepositedEvent> {
    readonly event = DepositedEvent;
    async handleBatch(envelopes: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
      received.push(...envelopes.map(({ eventId }) => eventId));
    }
  }
  FrameworkEventHandler({ name: 'one' })(Batches);
  const seen: unknown[] = [];
  const observer: Observer = {
    observe: (operation, run) => {
      if (operation.kind === 'handle') seen.push(...(operation.events as unknown[]).splice(0).toReversed());
      return run();
    },
  };
  const { caller } = callerOf(new Batches(), nothing, observer);
  expect(await caller.call([deposited('a', 1), deposited('a', 2)], 1, slotOf(0))).toEqual({ kind: 'done' });
  expect(received).toEqual(['a1', 'a2']);
  expect(seen.map((event) => Object.keys(event as object).toSorted())).toEqual([
    ['createdDate', 'headers', 'id', 'modelId', 'modelName', 'type'],
    ['createdDate', 'headers', 'id', 'modelId', 'modelName', 'type'],
  ]);
});

test('nothing waits for the clock when all calls were abandoned', async () => {
  const { caller, clock } = callerOf(
    handlerOf({ name: 'one' }, () => new Promise(() => undefined)),
    nothing,
  );
  const outcome = caller.call([deposited('a', 1)], 1, slotOf(0));
  await clock.advance(1_000);
  expect(clock.sleeperCount).toBe(1);
  caller.drop(new Error('delivery has stopped'));
  expect(await outcome).toEqual({ kind: 'dropped' });
  expect(clock.sleeperCount).toBe(0);
});

test('nothing waits for the clock when large events are loaded only after all calls were abandoned', async () => {
  const hold = gate();
  const handler = handlerOf({ name: 'one' });
  const { caller, clock, calls } = callerOf(handler, () => hold.opened);
  const outcome = caller.call([deposited('a', 1, { omitted: true })], 1, slotOf(0));
  calls.allowed = false;
  caller.drop(new Error('delivery has stopped'));
  hold.open();
  expect(await outcome).toEqual({ kind: 'held-back' });
  expect(clock.sleeperCount).toBe(0);
});

test('a call that must not be made is held back, and is made when it is allowed', async () => {
  const handler = handlerOf({ name: 'one' });
  const { caller, calls } = callerOf(handler, nothing);
  calls.allowed = false;
  expect(await caller.call([deposited('a', 1)], 1, slotOf(0))).toEqual({ kind: 'held-back' });
  expect(handler.seen).toEqual([]);
  calls.allowed = true;
  expect(await caller.call([deposited('a', 1)], 1, slotOf(0))).toEqual({ kind: 'done' });
  expect(handler.seen).toEqual(['a1']);
});

test('a call whose slot is lost while its large events are being loaded is not made, even if loading fails', async () => {
  const holds = [gate(), gate()];
  const handler = handlerOf({ name: 'one' });
  const { caller } = callerOf(handler, async ([event]) => {
    await holds[event!.modelVersion - 1]!.opened;
    if (event!.modelVersion === 2) throw new Error('the database is down');
  });
  const slot = slotOf(0);
  const outcomes = [1, 2].map((version) =>
    caller.call([deposited('a', version, { omitted: true })], 1, slot),
  );
  slot.lose();
  for (const hold of holds) hold.open();
  expect(await Promise.all(outcomes)).toEqual([{ kind: 'dropped' }, { kind: 'dropped' }]);
  expect(handler.seen).toEqual([]);
});

test('the time that a database takes to load large events does not count towards the timeout of the handler', async () => {
  const hold = gate();
  const handler = handlerOf({ name: 'one' }, () => new Promise(() => undefined));
  const { caller, clock } = callerOf(handler, () => hold.opened);
  const outcomes: unknown[] = [];
  const called = caller.call([deposited('a', 1, { omitted: true })], 1, slotOf(0));
  void called.then((outcome) => outcomes.push(outcome));
  await clock.advance(2 * timeoutMs);
  hold.open();
  await clock.advance(timeoutMs - 1);
  expect([handler.seen, outcomes]).toEqual([['a1'], []]);
  await clock.advance(1);
  expect(outcomes).toMatchObject([{ kind: 'failed', error: { code: 'handler-timeout' } }]);
});

test('large events that cannot be loaded fail with the error of the database', async () => {
  const down = new Error('the database is down');
  const { caller } = callerOf(handlerOf({ name: 'one' }), () => Promise.reject(down));
  const outcome = caller.call([deposited('a', 1, { omitted: true })], 1, slotOf(0));
  expect(await outcome).toEqual({ kind: 'failed', error: down });
});

test('only the large events of a batch are loaded, and the handler receives all events in order', async () => {
  const received: unknown[] = [];
  class Batches implements BatchEventHandler<DepositedEvent> {
    readonly event = DepositedEvent;
    async handleBatch(envelopes: readonly EventEnvelope<DepositedEvent>[]): Promise<void> {
      received.push(...envelopes.map(({ eventId, payload }) => [eventId, payload]));
    }
  }
  FrameworkEventHandler({ name: 'one' })(Batches);
  const loaded: string[] = [];
  const { caller } = callerOf(new Batches(), async (large) => void loaded.push(...large.map(({ id }) => id)));
  const batch = [deposited('a', 1), deposited('a', 2, { omitted: true }), deposited('a', 3)] as const;
  expect(await caller.call([...batch], 1, slotOf(0))).toEqual({ kind: 'done' });
  expect(loaded).toEqual(['a2']);
  expect(received).toEqual([
    ['a1', { amount: 1 }],
    ['a2', { amount: 1_000 }],
    ['a3', { amount: 3 }],
  ]);
});
