import type { Cursor } from '@framework/core/adapter';

import { type CursorSaver, SlotProgress } from './cursor-saver.js';
import type { HeldSlot } from './lease-keeper.js';

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

  /** Slots whose suspects are blocked and being tried. */
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

/**
 * Where one handler stands in one slot that this process holds.
 *
 * `careful`: the holder before vanished, so that what follows the cursor is blocked first. `settling`: it was blocked, and
 * is being tried alone. `open`: events are handled as they come.
 */
export interface SlotPosition {
  readonly slot: HeldSlot;
  readonly progress: SlotProgress;
  phase: 'careful' | 'settling' | 'open';
  /** Up to where it was read; what is saved lies behind. */
  cursor: Cursor;
  /** Which read of the handler was the last one there, from 1; 0 before that. */
  turn: number;
  /** What was known of commits when it was read last; -1 before that. */
  generation: number;
  /** Whether more was committed already when it was read last. */
  more: boolean;
  /** Wanted events beyond the saved cursor, without those of a transaction that is not read to its end: these cannot be saved yet. */
  unsavedCount: number;
  /** Wanted events that were read of such a transaction. */
  partCount: number;
  /** Wanted events that were blocked because the holder before vanished. */
  suspectCount: number;
}

/**
 * Positions that one read serves: equal cursors and phases, in the order of slots. First those that were not read for longest, so
 * that a long backlog of some slots keeps no other one from being read.
 */
export function groupPositions(positions: Iterable<SlotPosition>): readonly (readonly SlotPosition[])[] {
  const sorted = [...positions].sort((one, other) => one.slot.slot - other.slot.slot);
  const groups = [...Map.groupBy(sorted, ({ phase, cursor }) => `${phase} ${cursor}`).values()];
  return groups.sort((one, other) => lastTurn(one) - lastTurn(other));
}

function lastTurn(group: readonly SlotPosition[]): number {
  return Math.min(...group.map(({ turn }) => turn));
}
