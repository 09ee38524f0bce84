import type { DeliverableEvent, EventBatch } from '@framework/core';
import type { DeliverySettings } from '../delivery-settings.js';
import type { HeldSlot } from '../lease/held-slot.js';
import type { Parker } from '../parked/parker.js';
import { modelKey } from './flow-work.js';
import type { ParkedModelSet } from './parked-model-set.js';
import type { SlotPosition } from './slot-position.js';

/**
 * For how long suspects are due already when they are parked, a hundred years: a slot waits until they were tried, so that they
 * come before retries, which may be late by the time for which an outage, or a pause, has lasted.
 */
const dueSinceMs = 36_525 * 86_400_000;

/** Parks what follows the cursor of a slot whose holder vanished: any of it may have killed that one. */
export class SuspectIntake {
  readonly #handler: string;
  readonly #parker: Parker;
  readonly #parked: ParkedModelSet;
  readonly #check: (event: DeliverableEvent, slot: HeldSlot) => void;
  /** As many as the holder before can have had beyond its saved cursor, and the last batch. */
  readonly #suspectsMax: number;

  constructor(options: {
    readonly handler: string;
    readonly parker: Parker;
    readonly parked: ParkedModelSet;
    /** Has a model looked at that may have no parked events any more. */
    readonly check: (event: DeliverableEvent, slot: HeldSlot) => void;
    readonly settings: DeliverySettings;
  }) {
    this.#handler = options.handler;
    this.#parker = options.parker;
    this.#parked = options.parked;
    this.#check = options.check;
    this.#suspectsMax = options.settings.unsavedMax + 2 * options.settings.readMax;
  }

  /**
   * Parks the events of a batch; the slot settles when they were the last that the holder before can have had.
   *
   * However large a transaction is, its cursor stood before all of it.
   *
   * @param events those of the batch that are wanted, of the slot
   * @returns false when the slot is another process's now
   */
  async take(
    position: SlotPosition,
    events: readonly DeliverableEvent[],
    { more, partial = false }: Pick<EventBatch, 'more' | 'partial'>,
  ): Promise<boolean> {
    const { slot } = position;
    const suspects = events.map((event) => ({
      handler: this.#handler,
      event,
      attempts: 0,
      uncounted: 0,
      error: undefined,
      retryAfterMs: -dueSinceMs,
      dead: false,
      suspect: true,
    }));
    const { deletionCount } = this.#parked;
    if (!(await this.#parker.park(slot, suspects))) return false;
    const models = new Map(events.map((event) => [modelKey(event), event]));
    for (const model of models.keys()) this.#parked.add(slot.slot, model);
    // Before the answer came, some may have been tried and found to be done: nobody would look at their models again.
    if (this.#parked.deletionCount !== deletionCount)
      for (const event of models.values()) this.#check(event, slot);
    if (partial) return true;
    position.suspectCount += events.length;
    if (!more || position.suspectCount >= this.#suspectsMax) position.phase = 'settling';
    return true;
  }
}
