import { expect, test } from 'vitest';

import { HeldSlot, SlotProgress } from '../src/slots/held-slot.js';
import type { SlotPosition } from '../src/subscription/subscription.js';
import { EventBlocker } from '../src/subscription/blocked-events.js';
import { BlockedModelSet } from '../src/subscription/keyed-queue.js';
import { QuarantineIntake } from '../src/subscription/quarantine.js';
import { deposited } from './account.js';
import { DeliveryBench, handlerOf } from './delivery-bench.js';
import { testSettings, workerContext } from './worker-context.js';

test('a slot whose holder died is in quarantine only once a large transaction after its cursor is blocked completely', async () => {
  const settings = testSettings({ unsavedMax: 2, readMax: 2 });
  const slot = new HeldSlot({ handler: 'one', slot: 0, token: '1', abandoned: true });
  const position: SlotPosition = {
    slot,
    progress: new SlotProgress(() => undefined),
    phase: 'entering-quarantine',
    cursor: '',
    turn: 0,
    generation: -1,
    more: true,
    unsavedCount: 0,
    partCount: 0,
    quarantinedCount: 0,
  };
  const blocked: string[] = [];
  const context = workerContext({ settings });
  const store = {
    block: async (events: readonly { readonly event: { readonly id: string } }[]) => {
      blocked.push(...events.map(({ event }) => event.id));
      return [];
    },
  };
  const blocker = new EventBlocker(context, store, () => undefined);
  const models = new BlockedModelSet();
  const looked: string[] = [];
  const intake = new QuarantineIntake({
    handler: 'one',
    blocker,
    blocked: models,
    check: ({ id }) => looked.push(id),
    settings,
  });
  const phases: string[] = [];
  for (let version = 1; version <= 19; version += 2) {
    const batch = { more: true, partial: version < 9 };
    const events = [deposited('a', version), deposited('a', version + 1)];
    expect(await intake.take(position, events, batch)).toBe(true);
    expect(models.has(0, 'Account\0a')).toBe(true);
    phases.push(position.phase);
    if (position.phase === 'in-quarantine') break;
  }
  expect(phases).toEqual([...Array<string>(6).fill('entering-quarantine'), 'in-quarantine']);
  expect(blocked).toHaveLength(14);
  // No event turned out to be finished meanwhile.
  expect(looked).toEqual([]);
});

test('suspects are tried at once, even if the cursor behind them could not be saved', async () => {
  const bench = new DeliveryBench();
  const leaseMs = 10_000;
  bench.database.commit(deposited('a', 1));
  const { access: killed } = bench.start([handlerOf({ name: 'one' }, () => new Promise(() => undefined))], {
    leaseMs,
  });
  await bench.clock.advance(300);
  killed.kill();
  const handler = handlerOf({ name: 'one' });
  const { store, access } = bench.start([handler], { leaseMs });
  // The suspect is blocked only after the other slots turn out to have none.
  const block = store.blocked.block.bind(store.blocked);
  store.blocked.block = async (events) => {
    await bench.clock.sleep(200);
    return block(events);
  };
  access.failures.set('cursors.save', [new Error('down')]);
  await bench.clock.advance(leaseMs + 2_000);
  expect(handler.seen).toEqual(['a1']);
});

test('events of a model are handled directly again even if its suspect was tried before others were blocked', async () => {
  const bench = new DeliveryBench();
  const leaseMs = 10_000;
  bench.database.commit(...['b', 'a', 'e'].map((model) => deposited(model, 1)));
  const { access: killed } = bench.start([handlerOf({ name: 'one' }, () => new Promise(() => undefined))], {
    leaseMs,
  });
  await bench.clock.advance(300);
  killed.kill();
  const handler = handlerOf({ name: 'one' });
  const { store, executor } = bench.start([handler], { leaseMs, blockMax: 1 });
  const block = store.blocked.block.bind(store.blocked);
  store.blocked.block = async (events) => {
    if (events.some(({ event }) => event.id === 'e1')) await bench.clock.sleep(3_000);
    return block(events);
  };
  await bench.clock.advance(leaseMs + 10_000);
  expect(handler.seen.toSorted()).toEqual(['a1', 'b1', 'e1']);
  const { blocked } = bench.database.writes;
  bench.database.commit(...['b', 'a', 'e'].map((model) => deposited(model, 2)));
  executor.committed();
  await bench.clock.advance(100);
  expect(handler.seen.slice(3).toSorted()).toEqual(['a2', 'b2', 'e2']);
  expect(bench.database.writes.blocked).toBe(blocked);
});

test('suspects that cannot be blocked before their process stops are left to the next one', async () => {
  const bench = new DeliveryBench();
  const leaseMs = 10_000;
  bench.database.commit(deposited('a', 1));
  const { access: killed } = bench.start([handlerOf({ name: 'one' }, () => new Promise(() => undefined))], {
    leaseMs,
  });
  await bench.clock.advance(300);
  killed.kill();
  const { access, delivery } = bench.start([handlerOf({ name: 'one' })], { leaseMs });
  access.failures.set(
    'blocked.block',
    Array.from({ length: 100 }, () => new Error('down')),
  );
  await bench.clock.advance(leaseMs + 2_000);
  const stopped = delivery.stop({ timeoutMs: 1_000 });
  await bench.clock.advance(10_000);
  await stopped;
  expect(bench.database.cursors.get('one 0')).toBe(0);
  const handler = handlerOf({ name: 'one' });
  bench.start([handler]);
  await bench.clock.advance(2_000);
  expect(handler.seen).toEqual(['a1']);
});
