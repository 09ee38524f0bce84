import type { DeliverableEvent } from '@framework/core/adapter';

import type { EngineSettings } from '../delivery-settings.js';
import type { EventWork, HeldSlot } from '../slots/held-slot.js';
import { heldBytes } from './log-reader.js';

/** How many reads of the log one handler may have in progress at once. */
const readsMax = 4;
/** Into how many shares a limit of a handler is divided: see {@link shareOf}. */
const shareCount = 16;

/**
 * What each slot may have of a limit that all slots of a handler have together, even when others have used it up: calls that hang, or
 * models with long backlogs, hold up no other slot.
 */
export function shareOf(limit: number): number {
  return Math.max(1, Math.floor(limit / shareCount));
}

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
   * @param onRoom called when more may be read: of any slot, or of one that was above its share
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

  /**
   * How many reads may begin now. Each may return `readBytesMax`; together with unfinished events and running reads, they may have at
   * most four times as much. Beyond that, only slots below their share are read.
   */
  get readRoom(): number {
    return this.#isFull ? Math.min(1, readsMax - this.#readCount) : this.#room;
  }

  /** Whether more of a slot may be read now. */
  admits(slot: HeldSlot): boolean {
    return this.readRoom > 0 && (!this.#isFull || this.#isBelowShare(slot));
  }

  /** Reads, and counts the read until it has ended. */
  async reading<Result>(read: () => Promise<Result>): Promise<Result> {
    this.#readCount++;
    try {
      return await read();
    } finally {
      const wasFull = this.#isFull;
      this.#readCount--;
      if (wasFull) this.#onRoom();
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
    const wasFull = sign < 0 && this.#isFull;
    let gainsShare = false;
    for (const { event, slot } of works) {
      const bytes = sign * heldBytes(event);
      const wasAbove = wasFull && !this.#isBelowShare(slot);
      slot.load.count += sign;
      slot.load.bytes += bytes;
      this.#count += sign;
      this.#bytes += bytes;
      gainsShare ||= wasAbove && this.#isBelowShare(slot);
    }
    if (wasFull && (gainsShare || !this.#isFull)) this.#onRoom();
  }

  get #isFull(): boolean {
    return this.#room === 0;
  }

  /** How many reads may begin now of slots that are above their share. */
  get #room(): number {
    const { unfinishedMax, readBytesMax } = this.#settings;
    let [count, bytes] = [this.#count, this.#bytes];
    for (const { load } of this.#waitingSlots()) {
      count -= load.count;
      bytes -= load.bytes;
    }
    if (count >= unfinishedMax) return 0;
    return Math.max(0, readsMax - this.#readCount - Math.ceil(bytes / readBytesMax));
  }

  #isBelowShare({ load }: HeldSlot): boolean {
    const { unfinishedMax, readBytesMax } = this.#settings;
    return load.count < shareOf(unfinishedMax) && load.bytes < shareOf(readsMax * readBytesMax);
  }
}
