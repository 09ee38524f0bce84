import type { SlotLease } from '@framework/core';

/** A slot that this process holds for a handler, until it does not: everything done there for the handler asks this first. */
export class HeldSlot {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  readonly token: string;
  /** Whether the holder before vanished with it, or stood still for too long: any event beyond the cursor may be why. */
  readonly abandoned: boolean;
  readonly #lost = new AbortController();

  constructor({ handler, slot, token, abandoned }: SlotLease) {
    this.handler = handler;
    this.slot = slot;
    this.token = token;
    this.abandoned = abandoned;
  }

  /** False for good once the slot is lost or given back. */
  get held(): boolean {
    return !this.#lost.signal.aborted;
  }

  /** Aborted when the slot is lost or given back. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  lose(): void {
    this.#lost.abort(new Error(`Slot ${this.slot} of ${this.handler} is held by another process now`));
  }
}
