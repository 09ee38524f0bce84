import type { DeliverableEvent } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { HeldSlot, ModelRecovery, modelKey } from './held-slot.js';

const model = { modelName: 'Wallet', modelId: 'w1' };

/** An event of the model, as it is read from the slot. */
function read(modelVersion: number) {
  const event = { ...model, modelVersion, ordinal: 0 } as DeliverableEvent;
  return { event, slot, onFinished: () => undefined };
}

let slot: HeldSlot;

/** A model that failed at version 5, and was drained up to version 7 after the slot had met some of these versions. */
function openedModel(...met: readonly number[]): ModelRecovery {
  slot = new HeldSlot({ handler: 'notify', slot: 0, token: 'token', abandoned: false });
  const recovery = new ModelRecovery(slot, model, 'waiting');
  slot.blocked.set(modelKey(model), recovery);
  for (const version of met) recovery.meet(read(version));
  recovery.position = { modelVersion: 7, ordinal: 1 };
  recovery.open(3);
  return recovery;
}

test('an event that was drained is left when the slot meets it after a later version', () => {
  const recovery = openedModel(5, 7);
  expect([6, 8].map((version) => recovery.meet(read(version)))).toEqual(['leave', 'handle']);
});

test('an open model is forgotten after a read of its slot that began later and reached the end', () => {
  const recovery = openedModel(5, 7);
  recovery.forget(3);
  expect(slot.blocked.size).toBe(1);
  recovery.forget(4);
  expect([slot.blocked.size, slot.opened.size]).toEqual([0, 0]);
});

test('with a source of its own, an open model is forgotten once the source has reached what was drained', () => {
  const recovery = openedModel(5, 6);
  recovery.forget(undefined);
  expect(slot.blocked.size).toBe(1);
  recovery.meet(read(7));
  recovery.forget(undefined);
  expect([slot.blocked.size, slot.opened.size]).toEqual([0, 0]);
});

test('a model that is remembered as open is taken when a late statement has blocked it again', () => {
  const opened = openedModel(5, 7);
  const again = slot.recoveryOf(model, 'waiting');
  expect(again.phase).toBe('waiting');
  opened.forget(4);
  expect([...slot.blocked.values()]).toEqual([again]);
  expect(slot.opened.size).toBe(0);
});

test('of the models that the slot has met, only some are remembered as open', () => {
  openedModel(5, 6);
  for (let index = 0; index < 1_000; index++) {
    const recovery = slot.recoveryOf({ modelName: 'Wallet', modelId: `met-${index}` }, 'waiting');
    recovery.leave({ modelVersion: 1, ordinal: 0 });
    recovery.position = { modelVersion: 1, ordinal: 1 };
    recovery.open(3);
  }
  expect(slot.opened.size).toBe(256);
  expect(slot.blocked.has(modelKey(model))).toBe(true);
});
