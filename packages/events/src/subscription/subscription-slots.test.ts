import type { Cursor } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { SubscriptionSlots, type SlotPosition, groupPositions } from './subscription-slots.js';
import { HeldSlot, ModelRecovery } from '../slots/held-slot.js';

/** The calls of a cursor saver, and how often something may have become readable. */
function subscriptionSlots() {
  const moves: { readonly cursor: Cursor; readonly onSaved: (wantedCount: number) => void }[] = [];
  let readableCount = 0;
  const slots = new SubscriptionSlots({
    saver: { moved: ({ cursor, onSaved }) => void moves.push({ cursor, onSaved }) },
    quarantines: true,
    onReadable: () => readableCount++,
  });
  return { slots, moves, readableCount: () => readableCount };
}

function heldSlot(slot: number, abandoned = false): HeldSlot {
  return new HeldSlot({ handler: 'one', slot, token: `token ${slot}`, abandoned });
}

function numbersOf(positions: readonly SlotPosition[]): readonly number[] {
  return positions.map(({ slot }) => slot.slot);
}

function positionOf(slot: number, fields: Partial<SlotPosition>): SlotPosition {
  const { slots } = subscriptionSlots();
  slots.gain(heldSlot(slot), '');
  return Object.assign(slots.readable(0)[0]!, fields);
}

describe('the slots of a handler', () => {
  test('are readable while more events are known to follow, or something was committed since the last read', () => {
    const { slots, readableCount } = subscriptionSlots();
    for (const slot of [0, 1]) slots.gain(heldSlot(slot), '');
    expect(readableCount()).toBe(2);
    const [first, second] = slots.readable(0);
    for (const position of [first!, second!]) Object.assign(position, { generation: 3, more: false });
    expect(numbersOf(slots.readable(3))).toEqual([]);
    expect(numbersOf(slots.readable(4))).toEqual([0, 1]);
    second!.more = true;
    expect(numbersOf(slots.readable(3))).toEqual([1]);
  });

  test('are readable again only when their suspects have been tried', () => {
    const { slots, readableCount } = subscriptionSlots();
    const [abandoned, open] = [heldSlot(0, true), heldSlot(1)];
    slots.gain(abandoned, '');
    slots.gain(open, '');
    const [position] = slots.readable(0);
    expect(slots.readable(0).map(({ phase }) => phase)).toEqual(['entering-quarantine', 'open']);
    expect([slots.mayRecover(abandoned), slots.mayRecover(open)]).toEqual([false, true]);
    const models = ['a', 'b'].map(
      (modelId) => new ModelRecovery(abandoned, { modelName: 'Thing', modelId }, 'waiting', 1),
    );
    for (const model of models) position!.suspects.add(model);
    slots.entered(position!, 1, false, 2);
    expect(position!.phase).toBe('entering-quarantine');
    slots.entered(position!, 1, false, 2);
    expect([position!.phase, slots.mayRecover(abandoned)]).toEqual(['in-quarantine', true]);
    expect(numbersOf(slots.readable(0))).toEqual([1]);
    const before = readableCount();
    slots.tried(models[0]!);
    slots.tried(new ModelRecovery(heldSlot(7), { modelName: 'Thing', modelId: 'b' }, 'waiting'));
    expect([numbersOf(slots.readable(0)), readableCount()]).toEqual([[1], before]);
    slots.tried(models[1]!);
    expect([numbersOf(slots.readable(0)), readableCount()]).toEqual([[0, 1], before + 1]);
  });

  test('are removed when they are lost, unless they were gained again before that', () => {
    const { slots } = subscriptionSlots();
    const [first, again, other] = [heldSlot(0), heldSlot(0), heldSlot(1)];
    slots.gain(first, 'old');
    slots.gain(other, 'old');
    slots.gain(again, 'new');
    first.lose();
    expect(slots.readable(0).map(({ slot, cursor }) => [slot.slot, cursor])).toEqual([
      [1, 'old'],
      [0, 'new'],
    ]);
    again.lose();
    expect(numbersOf(slots.readable(0))).toEqual([1]);
  });

  test('count the events beyond their saved cursors, until those are saved', () => {
    const { slots, moves, readableCount } = subscriptionSlots();
    for (const slot of [0, 1]) slots.gain(heldSlot(slot), '');
    const [first, second] = slots.readable(0);
    first!.unsavedCount = 5;
    second!.unsavedCount = 3;
    expect(slots.unsavedCount(new Set())).toBe(8);
    expect(slots.unsavedCount(new Set([first!.slot]))).toBe(3);
    first!.finish(first!.add('later', 1));
    expect(moves.map(({ cursor }) => cursor)).toEqual(['later']);
    const before = readableCount();
    expect(slots.unsavedCount(new Set())).toBe(9);
    moves[0]!.onSaved(4);
    expect(slots.unsavedCount(new Set())).toBe(5);
    expect(readableCount()).toBe(before + 1);
  });
});

describe('slots that are read together', () => {
  test('have the same cursor and phase, and those that have waited longest come first', () => {
    const positions = [
      positionOf(3, { cursor: 'x', turn: 2 }),
      positionOf(2, { cursor: 'y', turn: 4 }),
      positionOf(1, { cursor: 'x', turn: 5 }),
      positionOf(0, { cursor: 'y', turn: 3 }),
      positionOf(5, { cursor: 'y', turn: 1, phase: 'entering-quarantine' }),
    ];
    expect(groupPositions(positions).map(numbersOf)).toEqual([[5], [1, 3], [0, 2]]);
  });
});
