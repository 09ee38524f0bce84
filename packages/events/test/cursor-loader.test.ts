import type { HandlerCursor, KnownHandler, BlockedModel } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { CursorLoader } from '../src/subscription/cursor-loader.js';
import { HeldSlot } from '../src/slots/held-slot.js';
import { workerContext } from './worker-context.js';

/** A subscription that records its calls. */
class ToldSubscription {
  readonly gains: string[] = [];
  readonly blockedModels: string[] = [];
  paused = false;

  gain({ slot }: HeldSlot, cursor: string, blockedModels: readonly string[]): void {
    this.gains.push(`${slot} at ${cursor}`);
    this.blockedModels.push(...blockedModels);
  }

  setPaused(paused: boolean): void {
    this.paused = paused;
  }
}

/** The contents of the database, and a loader that asks it. */
class AskingLoader {
  readonly clock = new VirtualClock();
  readonly subscriptions: ReadonlyMap<string, ToldSubscription> = new Map([
    ['one', new ToldSubscription()],
    ['two', new ToldSubscription()],
  ]);
  readonly errors: unknown[] = [];
  readonly asked: (readonly number[])[] = [];
  readonly models: BlockedModel[] = [];
  readonly ended = new AbortController();
  blockedCount = 0;
  cursorsOf: (slots: readonly number[]) => Promise<readonly HandlerCursor[]> = async (slots) =>
    slots.flatMap((slot) => ['one', 'two'].map((handler) => cursorOf(handler, slot)));
  known: () => Promise<readonly KnownHandler[]> = async () => [];
  saved: Promise<void> = Promise.resolve();

  readonly loader: CursorLoader = new CursorLoader({
    context: workerContext({
      clock: this.clock,
      ended: this.ended.signal,
      onError: (error) => this.errors.push(error),
    }),
    cursors: {
      load: (slots) => {
        this.asked.push(slots);
        return this.cursorsOf(slots);
      },
      known: () => this.known(),
    },
    blocked: {
      models: async (_places, { limit, after }) => {
        const from = after === undefined ? 0 : this.models.indexOf(after) + 1;
        return this.models.slice(from, from + limit);
      },
    },
    saver: { settled: () => this.saved },
    subscriptions: this.subscriptions,
    onBlocked: () => this.blockedCount++,
  });

  subscription(handler: string): ToldSubscription {
    return this.subscriptions.get(handler)!;
  }
}

function cursorOf(handler: string, slot: number): HandlerCursor {
  return { handler, slot, cursor: `${handler} ${slot}`, paused: false };
}

function knownAs(handler: string, paused = false): KnownHandler {
  return { handler, names: [handler], paused };
}

function slotOf(handler: string, slot: number): HeldSlot {
  return new HeldSlot({ handler, slot, token: 't', abandoned: false });
}

test('handlers start at their cursors, only in the slots that were gained', async () => {
  const asking = new AskingLoader();
  await asking.loader.start([slotOf('one', 0), slotOf('one', 3), slotOf('two', 3)]);
  expect(asking.asked).toEqual([[0, 3]]);
  expect(asking.subscription('one').gains).toEqual(['0 at one 0', '3 at one 3']);
  expect(asking.subscription('two').gains).toEqual(['3 at two 3']);
  expect(asking.blockedCount).toBe(1);
});

test.each([1, 4_999, 5_000, 5_001, 10_000, 12_345])(
  'handlers know all models with blocked events, even %d of them',
  async (count) => {
    const asking = new AskingLoader();
    const names = Array.from({ length: count }, (_item, index) => `m${index}`);
    for (const modelId of names) {
      asking.models.push({ handler: 'one', slot: 0, modelName: 'Account', modelId });
    }
    await asking.loader.start([slotOf('one', 0), slotOf('two', 0)]);
    const known = asking.subscription('one').blockedModels;
    expect(known).toHaveLength(count);
    expect(names.every((name, index) => known[index]!.includes(name))).toBe(true);
    expect(asking.subscription('two').blockedModels).toEqual([]);
  },
);

test('events that are blocked before the cursors are read are known, however long that takes', async () => {
  const asking = new AskingLoader();
  const { promise, resolve } = Promise.withResolvers<readonly HandlerCursor[]>();
  asking.cursorsOf = () => promise;
  const started = asking.loader.start([slotOf('one', 0)]);
  await asking.clock.advance(100);
  asking.models.push({ handler: 'one', slot: 0, modelName: 'Account', modelId: 'a' });
  resolve([cursorOf('one', 0)]);
  await started;
  expect(asking.subscription('one').blockedModels).toEqual(['Account\0a']);
});

test('cursors are read only after a save in progress, which may be of the same slots', async () => {
  const asking = new AskingLoader();
  const { promise, resolve } = Promise.withResolvers<void>();
  asking.saved = promise;
  const started = asking.loader.start([slotOf('one', 0)]);
  await asking.clock.advance(100);
  expect(asking.asked).toEqual([]);
  resolve();
  await started;
  expect(asking.subscription('one').gains).toEqual(['0 at one 0']);
});

test('a slot that is lost while its cursor is read is left alone', async () => {
  const asking = new AskingLoader();
  const [kept, lost] = [slotOf('one', 0), slotOf('one', 1)];
  const { promise, resolve } = Promise.withResolvers<readonly HandlerCursor[]>();
  asking.cursorsOf = () => promise;
  const started = asking.loader.start([kept, lost]);
  lost.lose();
  resolve([cursorOf('one', 0), cursorOf('one', 1)]);
  await started;
  expect(asking.subscription('one').gains).toEqual(['0 at one 0']);
});

test('a slot without a cursor, or of a handler that is gone, is left alone', async () => {
  const asking = new AskingLoader();
  asking.cursorsOf = async () => [cursorOf('one', 0), cursorOf('gone', 0)];
  await asking.loader.start([slotOf('one', 0), slotOf('one', 1), slotOf('gone', 0)]);
  expect(asking.subscription('one').gains).toEqual(['0 at one 0']);
  expect(asking.errors).toEqual([]);
});

test('the database is asked again until it answers or the slots are lost', async () => {
  const asking = new AskingLoader();
  const answer = asking.cursorsOf;
  const down = new Error('down');
  asking.cursorsOf = () => Promise.reject(down);
  const [kept, lost] = [slotOf('one', 0), slotOf('one', 1)];
  const started = Promise.all([asking.loader.start([kept]), asking.loader.start([lost])]);
  await asking.clock.advance(1_000);
  lost.lose();
  await asking.clock.advance(10_000);
  asking.asked.length = 0;
  asking.cursorsOf = answer;
  await asking.clock.advance(10_000);
  await started;
  expect(asking.asked).toEqual([[0]]);
  expect(asking.subscription('one').gains).toEqual(['0 at one 0']);
  expect(asking.errors).toContain(down);
});

test('a refresh returns which handlers are paused, and which ones the database knows', async () => {
  const asking = new AskingLoader();
  asking.known = async () => [knownAs('two', true), knownAs('other', true)];
  expect(await asking.loader.refresh()).toEqual([knownAs('two', true), knownAs('other', true)]);
  expect([asking.subscription('one').paused, asking.subscription('two').paused]).toEqual([false, true]);
  expect(asking.blockedCount).toBe(0);
  asking.known = async () => [knownAs('one'), knownAs('two')];
  await asking.loader.refresh();
  expect(asking.subscription('two').paused).toBe(false);
  // Blocked events of the slot may be due.
  expect(asking.blockedCount).toBe(1);
});

test('a late answer does not overwrite newer knowledge', async () => {
  const asking = new AskingLoader();
  const answers = [0, 1].map(() => Promise.withResolvers<readonly KnownHandler[]>());
  let askCount = 0;
  asking.known = () => answers[askCount++]!.promise;
  const refreshes = [asking.loader.refresh(), asking.loader.refresh()];
  answers[1]!.resolve([knownAs('one', true), knownAs('two', true)]);
  await refreshes[1];
  asking.loader.setPaused('two', false);
  asking.loader.setPaused('nobody', true);
  answers[0]!.resolve([knownAs('one'), knownAs('two', true)]);
  await refreshes[0];
  expect([asking.subscription('one').paused, asking.subscription('two').paused]).toEqual([true, false]);
});
