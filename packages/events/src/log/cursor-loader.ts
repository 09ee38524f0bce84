import {
  type HandlerCursor,
  type HandlerCursors,
  InvariantViolation,
  type ParkedEvents,
} from '@framework/core';
import { modelKey } from '../flow/flow-work.js';
import type { HandlerFlow } from '../flow/handler-flow.js';
import type { HeldSlot } from '../lease/held-slot.js';
import { untilDone } from '../waking/until-done.js';
import type { WorkerContext } from '../worker-context.js';

/** Learns from the database where the handlers stand, and tells their flows. */
export class CursorLoader {
  readonly #context: WorkerContext;
  readonly #cursors: Pick<HandlerCursors, 'load'>;
  readonly #parked: Pick<ParkedEvents, 'models'>;
  readonly #flows: ReadonlyMap<string, HandlerFlow>;
  readonly #onParked: () => void;

  constructor(options: {
    readonly context: WorkerContext;
    readonly cursors: Pick<HandlerCursors, 'load'>;
    readonly parked: Pick<ParkedEvents, 'models'>;
    readonly flows: ReadonlyMap<string, HandlerFlow>;
    /** Called when parked events may be due. */
    readonly onParked: () => void;
  }) {
    this.#context = options.context;
    this.#cursors = options.cursors;
    this.#parked = options.parked;
    this.#flows = options.flows;
    this.#onParked = options.onParked;
  }

  /** Starts every flow on slots that are new here; goes on until it has, or the slots are lost. */
  async start(gained: readonly HeldSlot[]): Promise<void> {
    await untilDone(this.#context, this.#context.ended, async () => {
      const leases = new Map(gained.filter((slot) => slot.held).map((slot) => [slot.slot, slot]));
      const slots = [...leases.keys()];
      if (slots.length === 0) return;
      const [cursors, models] = await Promise.all([this.#cursors.load(slots), this.#parked.models(slots)]);
      const parked = Map.groupBy(models, placeOf);
      for (const cursor of cursors) {
        const flow = this.#flows.get(cursor.handler);
        const lease = leases.get(cursor.slot);
        if (flow === undefined || lease?.held !== true) continue;
        flow.setPaused(cursor.paused);
        flow.gain(lease, cursor.cursor, (parked.get(placeOf(cursor)) ?? []).map(modelKey));
      }
      this.#assertComplete(cursors.length, slots.length);
      this.#onParked();
    });
  }

  /** Learns which handlers an operator has paused or let go on; one slot tells it of all. */
  async refreshPaused({ slot }: HeldSlot): Promise<void> {
    for (const { handler, paused } of await this.#cursors.load([slot])) {
      const flow = this.#flows.get(handler);
      if (flow?.paused === true && !paused) this.#onParked();
      flow?.setPaused(paused);
    }
  }

  #assertComplete(cursorCount: number, slotCount: number): void {
    if (cursorCount >= this.#flows.size * slotCount) return;
    this.#context.onError(
      new InvariantViolation(
        `The database has ${cursorCount} cursors in ${slotCount} slots for ${this.#flows.size} handlers: some are delivered nothing there`,
      ),
    );
  }
}

function placeOf({ handler, slot }: Pick<HandlerCursor, 'handler' | 'slot'>): string {
  return `${handler} ${slot}`;
}
