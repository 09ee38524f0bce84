import type { ParkedEvent, ParkedEvents } from '@framework/core';
import type { HeldSlot } from '../lease/held-slot.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';

/** Parks events durably: goes on until they are, unless the slot is lost or delivery ends. */
export class Parker {
  readonly #context: WorkerContext;
  readonly #parked: Pick<ParkedEvents, 'park'>;
  readonly #onLost: (tokens: readonly string[]) => void;

  constructor(
    context: WorkerContext,
    parked: Pick<ParkedEvents, 'park'>,
    onLost: (tokens: readonly string[]) => void,
  ) {
    this.#context = context;
    this.#parked = parked;
    this.#onLost = onLost;
  }

  /** Parks events of one slot, in order; false when they are another process's business now. */
  async park(slot: HeldSlot, events: readonly Omit<ParkedEvent, 'token'>[]): Promise<boolean> {
    const { settings, onError, ended } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (let from = 0; from < events.length;) {
      if (!slot.held || ended.aborted) return false;
      const chunk = events.slice(from, from + settings.parkMax);
      try {
        this.#onLost(await this.#parked.park(chunk.map((event) => ({ ...event, token: slot.token }))));
        from += chunk.length;
        backoff.succeeded();
      } catch (error) {
        onError(error);
        await backoff.failed(AbortSignal.any([slot.lost, ended]));
      }
    }
    return slot.held;
  }
}
