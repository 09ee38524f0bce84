import type { ParkedEvent, ParkedEvents } from '@framework/core';
import type { HeldSlot } from '../lease/held-slot.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';

/** Events that are to be parked in one statement, and who waits for that. */
interface Waiting {
  readonly events: readonly ParkedEvent[];
  readonly answer: (isParked: boolean) => void;
}

/** Parks events durably: goes on until they are, unless the slot is lost or delivery ends. */
export class Parker {
  readonly #context: WorkerContext;
  readonly #parked: Pick<ParkedEvents, 'park'>;
  readonly #onLost: (tokens: readonly string[]) => void;
  readonly #waiting: Waiting[] = [];
  #parking = false;

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
    const { settings, ended } = this.#context;
    for (let from = 0; from < events.length; from += settings.parkMax) {
      if (!slot.held || ended.aborted) return false;
      const chunk = events.slice(from, from + settings.parkMax);
      const tokened = chunk.map((event) => ({ ...event, token: slot.token }));
      // What is refused among others must not keep them out.
      if (!(await this.#parkWithOthers(tokened)) && !(await this.#parkAlone(slot, tokened))) return false;
    }
    return slot.held;
  }

  /** Parks together what is asked for at the same time: one statement at once leaves connections for what keeps the leases. */
  #parkWithOthers(events: readonly ParkedEvent[]): Promise<boolean> {
    return new Promise((answer) => {
      this.#waiting.push({ events, answer });
      if (!this.#parking) void this.#parkWaiting();
    });
  }

  async #parkWaiting(): Promise<void> {
    this.#parking = true;
    // What comes in the same turn of the event loop goes together.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const together = this.#takeWaiting();
      const isParked = await this.#tryToPark(together.flatMap(({ events }) => events));
      for (const { answer } of together) answer(isParked);
    }
    this.#parking = false;
  }

  /** The first ones, with so many events as one statement may have. */
  #takeWaiting(): readonly Waiting[] {
    let count = 0;
    const end = this.#waiting.findIndex(({ events }, index) => {
      count += events.length;
      return index > 0 && count > this.#context.settings.parkMax;
    });
    return this.#waiting.splice(0, end === -1 ? this.#waiting.length : end);
  }

  async #parkAlone(slot: HeldSlot, events: readonly ParkedEvent[]): Promise<boolean> {
    const { ended } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (slot.held && !ended.aborted) {
      await backoff.failed(AbortSignal.any([slot.lost, ended]));
      if (slot.held && !ended.aborted && (await this.#tryToPark(events))) return true;
    }
    return false;
  }

  async #tryToPark(events: readonly ParkedEvent[]): Promise<boolean> {
    try {
      this.#onLost(await this.#parked.park(events));
      return true;
    } catch (error) {
      this.#context.onError(error);
      return false;
    }
  }
}
