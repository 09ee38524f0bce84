import type { Cursor } from '@framework/core';
import type { HeldSlot } from '../lease/held-slot.js';
import type { CursorSaver } from '../log/cursor-saver.js';
import { SlotProgress } from '../log/slot-progress.js';
import type { SlotPosition } from './slot-position.js';

/** Where one handler stands in the slots that this process holds. */
export class FlowSlots {
  readonly #handler: string;
  readonly #saver: Pick<CursorSaver, 'moved'>;
  readonly #onReadable: () => void;
  readonly #positions = new Map<number, SlotPosition>();

  constructor(options: {
    readonly handler: string;
    readonly saver: Pick<CursorSaver, 'moved'>;
    /** Called when a slot may have become readable. */
    readonly onReadable: () => void;
  }) {
    this.#handler = options.handler;
    this.#saver = options.saver;
    this.#onReadable = options.onReadable;
  }

  /** Whether it has started on a slot. */
  has(slot: HeldSlot): boolean {
    return this.#positions.get(slot.slot)?.slot === slot;
  }

  /** Slots whose suspects are parked and being tried. */
  get settling(): readonly HeldSlot[] {
    return [...this.#positions.values()].filter(({ phase }) => phase === 'settling').map(({ slot }) => slot);
  }

  /**
   * Wanted events beyond the saved cursors.
   *
   * @param except slots whose events do not count
   */
  unsavedCount(except: ReadonlySet<number>): number {
    let count = 0;
    for (const [slot, position] of this.#positions) if (!except.has(slot)) count += position.unsavedCount;
    return count;
  }

  /** Starts on a slot, until it is lost. */
  gain(slot: HeldSlot, cursor: Cursor): void {
    const handler = this.#handler;
    const onSaved = (wantedCount: number): void => {
      position.unsavedCount -= wantedCount;
      this.#onReadable();
    };
    const position: SlotPosition = {
      slot,
      progress: new SlotProgress((moved, wantedCount) =>
        this.#saver.moved({ handler, slot, cursor: moved, wantedCount, onSaved }),
      ),
      phase: slot.abandoned ? 'careful' : 'open',
      cursor,
      turn: 0,
      generation: -1,
      more: true,
      unsavedCount: 0,
      partCount: 0,
      suspectCount: 0,
    };
    this.#positions.set(slot.slot, position);
    slot.lost.addEventListener('abort', () => this.#lose(position));
    this.#onReadable();
  }

  /** Says that no suspect of a slot is left that could be tried now: the slot flows again. */
  settled(slot: HeldSlot): void {
    const position = this.#positions.get(slot.slot);
    if (position?.slot !== slot || position.phase !== 'settling') return;
    position.phase = 'open';
    this.#onReadable();
  }

  /** Those that may have something to read, when that much is known of commits. */
  readable(generation: number): readonly SlotPosition[] {
    return [...this.#positions.values()].filter(
      (position) => position.phase !== 'settling' && (position.more || position.generation < generation),
    );
  }

  #lose(position: SlotPosition): void {
    const { slot } = position.slot;
    if (this.#positions.get(slot) === position) this.#positions.delete(slot);
  }
}
