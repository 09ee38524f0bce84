import type { DeliverableEvent, BlockedEvent } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { AbandonedCalls } from '../src/call/call-deadlines.js';
import { EventHandlerRegistry } from '../src/handler/event-handler-registry.js';
import { EnvelopeFactory } from '../src/handler/row-envelope.js';
import { HeldSlot } from '../src/slots/held-slot.js';
import type { UnsavedCursor } from '../src/slots/cursor-saver.js';
import type { SubscriptionDependencies } from '../src/subscription/event-dispatch.js';
import type { ReadBatch } from '../src/subscription/log-reader.js';
import { Subscription } from '../src/subscription/subscription.js';
import { deposited } from './account.js';
import { gate, handlerOf, shard } from './delivery-bench.js';
import { type TestSettings, testSettings, workerContext } from './worker-context.js';

const down = new Error('down');
const [a1, a2, b1] = [deposited('a', 1), deposited('a', 2), deposited('b', 1)];

/** The subscription of one handler, on a log whose answers a test decides. */
class Subscribed {
  readonly clock = new VirtualClock();
  readonly errors: unknown[] = [];
  /** Slots and cursor of each read. */
  readonly reads: (readonly [slots: string, cursor: string])[] = [];
  /** What the next reads return, or throw. Without one, a read finds nothing. */
  readonly answers: (Partial<ReadBatch> | Error | Promise<Partial<ReadBatch>>)[] = [];
  readonly moved: UnsavedCursor[] = [];
  readonly blocked: string[] = [];
  /** The other queries to the database, in order. */
  readonly asked: string[] = [];
  generation = 0;
  save = (): Promise<void> => Promise.resolve();
  onBlock = (): void => undefined;
  /** Delays the calls. */
  work = (): Promise<void> | void => undefined;
  readonly handler = handlerOf({ name: 'one' }, () => this.work());
  readonly subscription: Subscription;
  readonly running: Promise<void>;

  constructor(settings: TestSettings = {}) {
    const { clock } = this;
    const around: Partial<Record<keyof SubscriptionDependencies, unknown>> = {
      context: workerContext({
        clock,
        settings: testSettings(settings),
        onError: (error) => this.errors.push(error),
      }),
      envelopes: new EnvelopeFactory([shard], []),
      abandoned: new AbandonedCalls({ max: 9, forMs: 1, clock, onRestartNeeded: () => undefined }),
      reader: this.#reader(),
      saver: {
        moved: (cursor: UnsavedCursor) => this.moved.push(cursor),
        flushSoon: () => this.asked.push('flushSoon'),
        save: (all: boolean) => {
          this.asked.push(all ? 'save all' : 'save');
          return this.save();
        },
      },
      blocker: {
        block: async (slot: HeldSlot, events: readonly BlockedEvent[]) => {
          this.onBlock();
          this.blocked.push(...events.map(({ event }) => event.id));
          return slot.held;
        },
      },
      onBlocked: () => this.asked.push('told that some are blocked'),
    };
    const [registered] = new EventHandlerRegistry([this.handler]).handlers;
    this.subscription = new Subscription(
      { ...registered!, id: 'one' },
      around as unknown as SubscriptionDependencies,
    );
    this.running = this.subscription.run();
  }

  gain(slot: number, { abandoned = false, cursor = 'c0', models = [] as readonly string[] } = {}): HeldSlot {
    const held = new HeldSlot({ handler: 'one', slot, token: `${slot}`, abandoned });
    this.subscription.gain(held, cursor, models);
    return held;
  }

  /** Reports that something was committed. */
  async commit(): Promise<void> {
    this.generation++;
    this.subscription.wake();
    await this.settled();
  }

  /** Lets everything continue that has nothing left to wait for. */
  settled(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve));
  }

  #reader() {
    // oxlint-disable-next-line no-this-alias -- its generation changes
    const subscribed = this;
    return {
      get generation() {
        return subscribed.generation;
      },
      read: async (slots: readonly number[], cursor: string): Promise<ReadBatch> => {
        subscribed.reads.push([slots.join(), cursor]);
        const { generation } = subscribed;
        const answer = await (subscribed.answers.shift() ?? {});
        if (answer instanceof Error) throw answer;
        return { events: [], next: cursor, more: false, generation, ...answer };
      },
    };
  }
}

function batch(next: string, ...events: readonly DeliverableEvent[]): Partial<ReadBatch> {
  return { events, next };
}

describe('the subscription of a handler', () => {
  test('reads after its cursors, dispatches wanted events, and moves on when they are done', async () => {
    const one = new Subscribed();
    const hold = gate();
    one.work = () => hold.opened;
    one.answers.push(batch('c1', a1, { ...b1, type: 'ClosedEvent' }));
    one.gain(0);
    one.gain(1);
    await one.settled();
    expect([one.reads, one.handler.seen]).toEqual([[['0,1', 'c0']], ['a1']]);
    // Nothing of the other slot was wanted.
    expect(one.moved.map(({ slot, cursor }) => [slot.slot, cursor])).toEqual([[1, 'c1']]);
    hold.open();
    await one.settled();
    expect(one.moved.map(({ slot, cursor, wantedCount }) => [slot.slot, cursor, wantedCount])).toEqual([
      [1, 'c1', 0],
      [0, 'c1', 1],
    ]);
  });

  test('passes a transaction only after all of it was read, and saves no position within it', async () => {
    const one = new Subscribed({ unsavedMax: 1 });
    const part = { more: true, partial: true };
    one.answers.push({ ...batch('c0, a1', a1), ...part }, { ...batch('c0, a2', a2), ...part });
    one.answers.push(batch('c1', { ...b1, slot: 1 }));
    one.gain(0);
    one.gain(1);
    await one.settled();
    expect(one.handler.seen).toEqual(['a1', 'b1', 'a2']);
    expect(one.moved.map(({ slot, cursor, wantedCount }) => [slot.slot, cursor, wantedCount])).toEqual([
      [1, 'c1', 1],
      [0, 'c1', 2],
    ]);
    await one.commit();
    expect([one.reads.length, one.asked]).toEqual([3, ['flushSoon', 'flushSoon']]);
    for (const { onSaved, wantedCount } of one.moved) onSaved(wantedCount);
    await one.settled();
    expect(one.reads.slice(3)).toEqual([['0,1', 'c1']]);
  });

  test('reads on at once when there is more, and otherwise after a commit', async () => {
    const one = new Subscribed();
    one.answers.push({ ...batch('c1', a1), more: true }, batch('c2', a2));
    one.gain(0);
    await one.settled();
    expect(one.reads).toEqual([
      ['0', 'c0'],
      ['0', 'c1'],
    ]);
    one.subscription.wake();
    await one.settled();
    expect(one.reads).toHaveLength(2);
    await one.commit();
    expect(one.reads.slice(2)).toEqual([['0', 'c2']]);
  });

  test('reads at four positions at a time, beginning with those that have waited longest', async () => {
    const one = new Subscribed();
    const hold = gate();
    for (let slot = 0; slot < 4; slot++)
      one.answers.push(hold.opened.then(() => ({ ...batch(`d${slot}`), more: true })));
    for (let slot = 0; slot < 6; slot++) one.gain(slot, { cursor: `c${slot}` });
    await one.settled();
    expect(one.reads.map(([slots]) => slots)).toEqual(['0', '1', '2', '3']);
    hold.open();
    await one.settled();
    expect(one.reads.slice(4, 6).map(([slots]) => slots)).toEqual(['4', '5']);
  });

  test('sends the next read before it calls the handler with the previous one', async () => {
    const one = new Subscribed();
    const readCounts: number[] = [];
    one.work = () => void readCounts.push(one.reads.length);
    one.answers.push({ ...batch('c1', a1), more: true }, batch('c2', a2));
    one.gain(0);
    await one.settled();
    await one.settled();
    expect(readCounts).toEqual([2, 2]);
  });

  test('reads nothing while it is paused, and continues from its position', async () => {
    const one = new Subscribed();
    one.subscription.setPaused(true);
    one.answers.push(batch('c1', a1));
    one.gain(0);
    await one.settled();
    expect([one.subscription.paused, one.reads]).toEqual([true, []]);
    one.subscription.setPaused(false);
    await one.settled();
    expect([one.subscription.paused, one.handler.seen]).toEqual([false, ['a1']]);
  });

  test('reads nothing while too much is unfinished', async () => {
    const one = new Subscribed({ unfinishedMax: 1 });
    const hold = gate();
    one.work = () => hold.opened;
    one.answers.push({ ...batch('c1', a1), more: true });
    one.gain(0);
    await one.settled();
    expect(one.reads).toHaveLength(1);
    hold.open();
    await one.settled();
    expect(one.reads).toHaveLength(2);
  });

  test('reads nothing while too much is unsaved, and requests a save', async () => {
    const one = new Subscribed({ unsavedMax: 2 });
    one.answers.push({ ...batch('c1', a1, a2), more: true });
    one.gain(0);
    await one.settled();
    expect([one.reads.length, one.asked]).toEqual([1, ['flushSoon']]);
    await one.settled();
    for (const { onSaved, wantedCount } of one.moved) onSaved(wantedCount);
    await one.settled();
    expect(one.reads).toHaveLength(2);
  });

  test('reports an unreadable log, and reads again after growing waits', async () => {
    const one = new Subscribed({ storeBackoffBaseMs: 100 });
    one.answers.push(down, down, batch('c1', a1), down);
    one.gain(0);
    await one.settled();
    expect([one.errors, one.reads.length]).toEqual([[down], 1]);
    await one.clock.advance(100);
    expect(one.reads).toHaveLength(2);
    await one.clock.advance(199);
    expect(one.reads).toHaveLength(2);
    await one.clock.advance(1);
    await one.settled();
    expect(one.handler.seen).toEqual(['a1']);
    await one.commit();
    expect(one.reads).toHaveLength(4);
    await one.clock.advance(100);
    expect(one.reads).toHaveLength(5);
  });

  test('dispatches nothing from a slot lost during a read, nor after a stop', async () => {
    for (const end of ['lost', 'stopped']) {
      const one = new Subscribed();
      const hold = gate();
      one.answers.push(hold.opened.then(() => batch('c1', a1)));
      const slot = one.gain(0);
      await one.settled();
      if (end === 'lost') slot.lose();
      else one.subscription.stop();
      hold.open();
      await one.settled();
      expect([one.handler.seen, one.moved]).toEqual([[], []]);
    }
  });

  test('ends when it is stopped, even while it waits', async () => {
    const one = new Subscribed();
    one.gain(0);
    await one.settled();
    one.subscription.stop();
    await one.running;
    await one.commit();
    expect(one.reads).toHaveLength(1);
  });

  test('that is stopped finishes what was read, unless it is paused', async () => {
    for (const isPaused of [false, true]) {
      const one = new Subscribed();
      const hold = gate();
      one.work = () => hold.opened;
      one.answers.push(batch('c1', a1, a2));
      one.gain(0);
      await one.settled();
      if (isPaused) one.subscription.setPaused(true);
      one.subscription.stop();
      hold.open();
      await one.settled();
      expect(one.handler.seen).toEqual(isPaused ? ['a1'] : ['a1', 'a2']);
    }
  });

  test('abandons its work in a lost slot, and resumes when it regains the slot', async () => {
    const one = new Subscribed();
    one.work = () => new Promise(() => undefined);
    one.answers.push(batch('c1', a1), batch('c1', a1));
    const slot = one.gain(0, { models: ['Account\0b'] });
    await one.settled();
    expect(one.subscription.waitsForBlocked).toBe(true);
    slot.lose();
    await one.settled();
    expect(one.subscription.waitsForBlocked).toBe(false);
    one.gain(0);
    await one.settled();
    expect(one.handler.seen).toEqual(['a1', 'a1']);
  });
});

describe('a blocked event', () => {
  test('blocks later events of its model, whether it was blocked before the slot was gained or after', async () => {
    const one = new Subscribed();
    const slot = one.gain(0, { models: ['Account\0a'] });
    const other = one.gain(1);
    expect(one.subscription.waitsForBlocked).toBe(true);
    one.subscription.knowBlocked(other, b1);
    one.answers.push(batch('c1', a1, b1));
    await one.commit();
    expect([one.blocked.toSorted(), one.handler.seen]).toEqual([['a1', 'b1'], []]);
    expect(slot.held).toBe(true);
  });

  test('in a lost slot is left to its next holder', async () => {
    const one = new Subscribed();
    const slot = one.gain(0);
    slot.lose();
    one.subscription.knowBlocked(slot, a1);
    expect(one.subscription.waitsForBlocked).toBe(false);
    one.gain(0, { models: ['Account\0a'] });
    one.gain(0);
    expect(one.subscription.waitsForBlocked).toBe(false);
  });
});

describe('a slot whose holder died', () => {
  test('has the events after its cursor blocked and saved before any attempt', async () => {
    const one = new Subscribed();
    one.answers.push(batch('c1', a1, a2));
    const slot = one.gain(0, { abandoned: true });
    await one.settled();
    expect([one.blocked, one.handler.seen]).toEqual([['a1', 'a2'], []]);
    expect(one.moved.map(({ cursor, wantedCount }) => [cursor, wantedCount])).toEqual([['c1', 2]]);
    expect(one.asked).toEqual(['flushSoon', 'save', 'told that some are blocked']);
    expect(one.subscription.waitsForBlocked).toBe(true);
    await one.commit();
    expect(one.reads).toHaveLength(1);
    one.subscription.slots.released(slot);
    one.answers.push(batch('c2', deposited('e', 1)));
    await one.settled();
    expect(one.handler.seen).toEqual(['e1']);
  });

  test('is in quarantine at first, even if no event follows its cursor', async () => {
    const one = new Subscribed();
    one.gain(0, { abandoned: true });
    await one.settled();
    expect([one.subscription.waitsForBlocked, one.asked.at(-1)]).toEqual([
      true,
      'told that some are blocked',
    ]);
  });

  test('has its suspects tried even if the cursor behind them cannot be saved', async () => {
    const one = new Subscribed();
    one.save = () => Promise.reject(down);
    one.answers.push(batch('c1', a1));
    one.gain(0, { abandoned: true });
    await one.settled();
    expect([one.errors, one.asked.at(-1)]).toEqual([[down], 'told that some are blocked']);
  });

  test('and that is lost while its events are being blocked does not move on', async () => {
    const one = new Subscribed();
    one.answers.push(batch('c1', a1));
    const slot = one.gain(0, { abandoned: true });
    one.onBlock = () => slot.lose();
    await one.settled();
    expect([one.moved, one.asked]).toEqual([[], []]);
  });

  test('holds up no other slot that is read at the same time', async () => {
    const one = new Subscribed();
    const saved = gate();
    one.save = () => saved.opened;
    one.answers.push(batch('c1', a1), batch('c1', b1));
    one.gain(0, { abandoned: true });
    one.gain(1);
    await one.settled();
    expect([one.blocked, one.handler.seen]).toEqual([['a1'], ['b1']]);
  });
});
