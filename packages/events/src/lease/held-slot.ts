import type { SlotLease } from '@framework/core';

/** A slot that this process holds, until it does not: everything done for the slot asks this first. */
export class HeldSlot {
  readonly slot: number;
  readonly token: string;
  /** Whether the holder before vanished with it. */
  readonly abandoned: boolean;
  readonly #lost = new AbortController();

  constructor({ slot, token, abandoned }: SlotLease) {
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
    this.#lost.abort(new Error(`Slot ${this.slot} is held by another process now`));
  }
}
