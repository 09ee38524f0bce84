import type { Cursor } from '@framework/core';
import type { HeldSlot } from '../lease/held-slot.js';
import type { SlotProgress } from '../log/slot-progress.js';

/**
 * Where one handler stands in one slot that this process holds.
 *
 * `careful`: the holder before vanished, so that what follows the cursor is parked first. `settling`: it was parked, and
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
  /** Wanted events that were parked because the holder before vanished. */
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
