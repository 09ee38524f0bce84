import type { DeliverableEvent } from '@framework/core/adapter';

import type { EngineSettings } from '../delivery-settings.js';
import type { EventWork, HeldSlot } from '../slots/held-slot.js';
import { heldBytes } from './log-reader.js';

/** Events in memory. */
export interface Load {
  readonly count: number;
  readonly bytes: number;
}

export const nothing: Load = { count: 0, bytes: 0 };

export function loadOf(works: readonly Pick<EventWork, 'event'>[]): Load {
  return { count: works.length, bytes: works.reduce((sum, { event }) => sum + heldBytes(event), 0) };
}

/** How many reads of the log one handler may have in progress at once. */
const readsMax = 4;

/** What one handler has read and not finished, and what is being read for it: it limits how much more may be read. */
export class UnfinishedEvents {
  readonly #settings: Pick<EngineSettings, 'unfinishedMax' | 'readBytesMax'>;
  readonly #waiting: () => readonly (Load & { readonly slot: HeldSlot })[];
  readonly #onRoom: () => void;
  /** Those that are in no queue, by slot: kept until their model is open, or read ahead of a drain. */
  readonly #aside = new Map<HeldSlot, Load>();
  #load = nothing;
  #readCount = 0;

  constructor(options: {
    readonly settings: Pick<EngineSettings, 'unfinishedMax' | 'readBytesMax'>;
    /** The slots that wait, with what is in their queues. They do not hold up other slots: nothing more is read from them. */
    readonly waiting: () => readonly (Load & { readonly slot: HeldSlot })[];
    /** Called when it is no longer {@link UnfinishedEvents.full}. */
    readonly onRoom: () => void;
  }) {
    this.#settings = options.settings;
    this.#waiting = options.waiting;
    this.#onRoom = options.onRoom;
  }

  /** Whether so much is unfinished that no more may be read. */
  get full(): boolean {
    return this.readRoom === 0;
  }

  /**
   * How many reads may begin now. Each may return `readBytesMax`; together with unfinished events and running reads, they may have at
   * most four times as much.
   */
  get readRoom(): number {
    const { unfinishedMax, readBytesMax } = this.#settings;
    let { count, bytes } = this.#load;
    for (const { slot, ...queued } of this.#waiting()) {
      const aside = this.#aside.get(slot) ?? nothing;
      count -= queued.count + aside.count;
      bytes -= queued.bytes + aside.bytes;
    }
    const room = readsMax - this.#readCount - Math.ceil(bytes / readBytesMax);
    return count >= unfinishedMax ? 0 : Math.max(0, room);
  }

  /** Reads, and counts the read until it has ended. */
  async reading<Result>(read: () => Promise<Result>): Promise<Result> {
    this.#readCount++;
    try {
      return await read();
    } finally {
      const wasFull = this.full;
      this.#readCount--;
      if (wasFull && !this.full) this.#onRoom();
    }
  }

  /** Counts events that are in a queue or being handled, or counts them no more. */
  count(works: readonly Pick<EventWork, 'event' | 'slot'>[], sign: 1 | -1): void {
    this.#count(loadOf(works), sign);
    for (const { slot } of works) slot.countWork(sign);
  }

  /** Counts events that were read, but are in no queue, or counts them no more. */
  setAside(slot: HeldSlot, events: readonly DeliverableEvent[], sign: 1 | -1): void {
    const load = loadOf(events.map((event) => ({ event })));
    const before = this.#aside.get(slot) ?? nothing;
    const count = before.count + sign * load.count;
    if (count === 0) this.#aside.delete(slot);
    else this.#aside.set(slot, { count, bytes: before.bytes + sign * load.bytes });
    this.#count(load, sign);
  }

  #count({ count, bytes }: Load, sign: 1 | -1): void {
    const wasFull = sign < 0 && this.full;
    this.#load = {
      count: this.#load.count + sign * count,
      bytes: this.#load.bytes + sign * bytes,
    };
    if (wasFull && !this.full) this.#onRoom();
  }
}
