import type { DeliverableEvent } from '@framework/core/adapter';

import type { EngineSettings } from '../delivery-settings.js';
import type { EventWork, HeldSlot } from '../slots/held-slot.js';
import { heldBytes } from './log-reader.js';

/** How many reads of the log one handler may have in progress at once. */
const readsMax = 4;
/** Into how many shares `unfinishedMax` is divided. A slot counts as one at most, so that a slow model leaves other slots theirs. */
const shareCount = 16;

/** What one handler has read and not finished, and what is being read for it: it limits how much more may be read. */
export class UnfinishedEvents {
  readonly #settings: Pick<EngineSettings, 'unfinishedMax' | 'readBytesMax'>;
  readonly #waitingSlots: () => Iterable<HeldSlot>;
  readonly #onRoom: () => void;
  /** How many events are unfinished; of each slot, one share at most. */
  #count = 0;
  #bytes = 0;
  #readCount = 0;

  /**
   * @param waitingSlots the slots that wait: their events do not hold up other slots, because nothing more is read from them
   * @param onRoom called when it is no longer {@link full}, or a slot is no longer {@link isCrowded crowded}
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
      count -= this.#counted(load.count);
      bytes -= load.bytes;
    }
    const room = readsMax - this.#readCount - Math.ceil(bytes / readBytesMax);
    return count >= unfinishedMax ? 0 : Math.max(0, room);
  }

  /**
   * Whether a slot has so many unfinished events that no more may be read from it, even if others may be read. A call with as many events
   * as a batch has leaves room for those of the next one.
   */
  isCrowded({ load }: Pick<HeldSlot, 'load'>): boolean {
    return load.count > this.#settings.unfinishedMax / 2;
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
    let isRoomier = false;
    for (const { event, slot } of works) {
      const bytes = sign * heldBytes(event);
      const wasCrowded = this.isCrowded(slot);
      this.#count -= this.#counted(slot.load.count);
      slot.load.count += sign;
      slot.load.bytes += bytes;
      this.#count += this.#counted(slot.load.count);
      this.#bytes += bytes;
      isRoomier ||= wasCrowded && !this.isCrowded(slot);
    }
    if (isRoomier || (wasFull && !this.full)) this.#onRoom();
  }

  /** What the unfinished events of a slot count. */
  #counted(count: number): number {
    return Math.min(count, Math.max(1, this.#settings.unfinishedMax / shareCount));
  }
}
