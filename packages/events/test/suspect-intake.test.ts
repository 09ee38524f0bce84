import { expect, test } from 'vitest';
import { deliverySettings } from '../src/delivery-settings.js';
import { ParkedModelSet } from '../src/flow/parked-model-set.js';
import type { SlotPosition } from '../src/flow/slot-position.js';
import { SuspectIntake } from '../src/flow/suspect-intake.js';
import { HeldSlot } from '../src/lease/held-slot.js';
import { SlotProgress } from '../src/log/slot-progress.js';
import { Parker } from '../src/parked/parker.js';
import { deposited } from './account.js';
import { workerContext } from './worker-context.js';

test('a slot whose holder vanished settles behind the whole of a large transaction, before which its cursor stood', async () => {
  const settings = deliverySettings({ unsavedMax: 2, readMax: 2 });
  const slot = new HeldSlot({ handler: 'one', slot: 0, token: '1', abandoned: true });
  const position: SlotPosition = {
    slot,
    progress: new SlotProgress(() => undefined),
    phase: 'careful',
    cursor: '',
    turn: 0,
    generation: -1,
    more: true,
    unsavedCount: 0,
    suspectCount: 0,
  };
  const parked: string[] = [];
  const context = workerContext({ settings });
  const store = {
    park: async (events: readonly { readonly event: { readonly id: string } }[]) => {
      parked.push(...events.map(({ event }) => event.id));
      return [];
    },
  };
  const parker = new Parker(context, store, () => undefined);
  const intake = new SuspectIntake({ handler: 'one', parker, parked: new ParkedModelSet(), settings });
  const phases: string[] = [];
  for (let version = 1; version <= 19; version += 2) {
    const batch = { more: true, partial: version < 9 };
    await intake.take(position, [deposited('a', version), deposited('a', version + 1)], batch);
    phases.push(position.phase);
    if (position.phase === 'settling') break;
  }
  expect(phases).toEqual([...Array<string>(6).fill('careful'), 'settling']);
  expect(parked).toHaveLength(14);
});
