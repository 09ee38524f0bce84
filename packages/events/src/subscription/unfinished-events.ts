import type { DeliverableEvent } from '@framework/core/adapter';

import type { EngineSettings } from '../delivery-settings.js';
import type { EventWork, HeldSlot } from '../slots/held-slot.js';
import { heldBytes } from './log-reader.js';

/** How many reads of the log one handler may have in progress at once. */
const readsMax = 4;

/** What one handler has read and not finished, and what is being read for it: it limits how much more may be read. */
export class UnfinishedEvents {
  readonly #settings: Pick<EngineSettings, 'unfinishedMax' | 'readBytesMax'>;
  readonly #waitingSlots: () => Iterable<HeldSlot>;
  readonly #onRoom: () => void;
  #count = 0;
  #bytes = 0;
  #readCount = 0;

  /**
   * @param waitingSlots the slots that wait: their events do not hold up other slots, because nothing more is read from them
   * @param onRoom called when it is no longer {@link UnfinishedEvents.full}
   */
  constructor(
    settings: Pick<EngineSettings, 'unfinishedMax' | 'readBytesMax'>,
    waitingSlots: () => Iterable<HeldSlot>,
    onRoom: () => void,
  ) {
    this.#settings = settings;
    this.#waitingSlots = waitingSlots;
    this.#onRoom = onRoom;
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
    let [count, bytes] = [this.#count, this.#bytes];
    for (const { load } of this.#waitingSlots()) {
      count -= load.count;
      bytes -= load.bytes;
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
    this.#add(works, sign);
    for (const { slot } of works) slot.countWork(sign);
  }

  /** Counts events that were read, but are in no queue, or counts them no more. */
  setAside(slot: HeldSlot, events: readonly DeliverableEvent[], sign: 1 | -1): void {
    this.#add(
      events.map((event) => ({ slot, event })),
      sign,
    );
  }

  #add(works: readonly Pick<EventWork, 'event' | 'slot'>[], sign: 1 | -1): void {
    const wasFull = sign < 0 && this.full;
    for (const { event, slot } of works) {
      const bytes = sign * heldBytes(event);
      this.#count += sign;
      this.#bytes += bytes;
      slot.load.count += sign;
      slot.load.bytes += bytes;
    }
    if (wasFull && !this.full) this.#onRoom();
  }
}
