import type { Cursor } from '@framework/core/adapter';

import type { CursorSaver } from '../slots/cursor-saver.js';
import type { HeldSlot, ModelRecovery } from '../slots/held-slot.js';
import type { QuarantinePhase } from './quarantine.js';

interface SubscriptionSlotsOptions {
  readonly saver: Pick<CursorSaver, 'moved'>;
  /** Whether slots whose holder died enter quarantine; otherwise they are open at once. */
  readonly quarantines: boolean;
  /** Called when a slot may have become readable. */
  readonly onReadable: () => void;
}

/** The positions of one handler in the slots that this process holds. */
export class SubscriptionSlots {
  readonly #options: SubscriptionSlotsOptions;
  readonly #positions = new Map<HeldSlot, SlotPosition>();

  constructor(options: SubscriptionSlotsOptions) {
    this.#options = options;
  }

  /** Whether blocked models may be recovered in a slot: once it is known which are, and how many of their events are suspects. */
  mayRecover(slot: HeldSlot): boolean {
    const position = this.#positions.get(slot);
    return position !== undefined && !slot.isLeaving && position.phase !== 'entering-quarantine';
  }

  /** Whether any model is blocked there. */
  get hasBlocked(): boolean {
    for (const slot of this.#positions.keys())
      for (const { phase } of slot.blocked.values()) if (phase !== 'open') return true;
    return false;
  }

  /** Whether a slot enters quarantine. */
  quarantines({ abandoned }: HeldSlot): boolean {
    return abandoned && this.#options.quarantines;
  }

  /**
   * Wanted events beyond the saved cursors.
   *
   * @param except slots whose events do not count
   */
  unsavedCount(except: ReadonlySet<HeldSlot>): number {
    let count = 0;
    for (const { slot, unsavedCount } of this.#positions.values())
      if (!except.has(slot)) count += unsavedCount;
    return count;
  }

  /** The slots in which events are done, or left to blocked models, that the cursor cannot pass. */
  get withDoneBehind(): readonly HeldSlot[] {
    return [...this.#positions.values()].filter(({ hasDoneBehind }) => hasDoneBehind).map(({ slot }) => slot);
  }

  /** Works on a slot until it is lost. */
  gain(slot: HeldSlot, cursor: Cursor): void {
    const { saver, onReadable } = this.#options;
    const onSaved = (wantedCount: number): void => {
      position.unsavedCount -= wantedCount;
      onReadable();
    };
    const phase = this.quarantines(slot) ? 'entering-quarantine' : 'open';
    const position = new SlotPosition(slot, phase, cursor, (moved, wantedCount) =>
      saver.moved({ slot, cursor: moved, wantedCount, onSaved }),
    );
    slot.isOpen = position.phase === 'open';
    this.#positions.set(slot, position);
    slot.lost.addEventListener('abort', () => this.#positions.delete(slot));
    onReadable();
  }

  /** Records that the models of further events are held; the slot waits until they are tried once these were all suspects. */
  entered(position: SlotPosition, heldCount: number, isEnd: boolean, heldMax: number): void {
    position.heldCount += heldCount;
    if (!isEnd && position.heldCount < heldMax) return;
    position.phase = 'in-quarantine';
    this.#openIfTried(position);
  }

  /** Records that a model has no suspect left that could be tried now. */
  tried(model: ModelRecovery): void {
    const position = this.#positions.get(model.slot);
    if (position?.suspects.delete(model) === true) this.#openIfTried(position);
  }

  /** The slots that may have unread events as of a commit generation. */
  readable(generation: number): readonly SlotPosition[] {
    return [...this.#positions.values()].filter(
      ({ slot, phase, more, generation: readAt }) =>
        !slot.isLeaving && phase !== 'in-quarantine' && (more || readAt < generation),
    );
  }

  #openIfTried(position: SlotPosition): void {
    if (position.phase !== 'in-quarantine' || position.suspects.size > 0) return;
    position.phase = 'open';
    position.slot.isOpen = true;
    this.#options.onReadable();
  }
}

/** Events of one slot that were read together: the cursor may move beyond them when all are done or left to blocked models. */
interface ProgressStep {
  readonly next: Cursor;
  /** Whether the step ends within a transaction that continues after it. */
  readonly isPartial: boolean;
  unfinishedCount: number;
  readonly wantedCount: number;
}

/**
 * The position of one handler in one slot that this process holds.
 *
 * Its saved cursor may move up to the first event that is neither done nor left to a blocked model, and never into a transaction,
 * because a position within one cannot be saved.
 */
export class SlotPosition {
  readonly slot: HeldSlot;
  phase: QuarantinePhase;
  /** How far the log has been read; the saved cursor is at or before this. */
  cursor: Cursor;
  /** The number of the handler's last read there, from 1; 0 before that. */
  turn = 0;
  /** What was known about commits when it was last read; -1 before that. */
  generation = -1;
  /** Whether more had already been committed when it was last read. */
  more = true;
  /**
   * Wanted events beyond the saved cursor, except those of a transaction that is not completely read: these cannot be saved yet.
   */
  unsavedCount = 0;
  /** Wanted events that were read of a transaction that is not completely read. */
  partCount = 0;
  /** Wanted events whose models are held because the previous holder died. */
  heldCount = 0;
  /** Models with suspects that have not been tried. */
  readonly suspects = new Set<ModelRecovery>();

  readonly #onMoved: (cursor: Cursor, wantedCount: number) => void;
  readonly #steps: ProgressStep[] = [];
  /**
   * How many wanted events are finished in a transaction that is not finished itself; the cursor passes them together with the
   * rest of it.
   */
  #finishedCount = 0;

  /** @param onMoved called with the new position, and the number of wanted events between the previous one and it */
  constructor(
    slot: HeldSlot,
    phase: QuarantinePhase,
    cursor: Cursor,
    onMoved: (cursor: Cursor, wantedCount: number) => void,
  ) {
    this.slot = slot;
    this.phase = phase;
    this.cursor = cursor;
    this.#onMoved = onMoved;
  }

  /** Reads on: adds a step after all earlier ones; one without events is finished at once. */
  add(next: Cursor, wantedCount: number, isPartial = false): ProgressStep {
    const step: ProgressStep = { next, isPartial, unfinishedCount: wantedCount, wantedCount };
    this.#steps.push(step);
    if (wantedCount === 0) this.#move();
    this.cursor = next;
    this.partCount += wantedCount;
    if (isPartial) return step;
    this.unsavedCount += this.partCount;
    this.partCount = 0;
    return step;
  }

  /** Records that one event of a step is done or left to a blocked model. */
  finish(step: ProgressStep): void {
    step.unfinishedCount--;
    if (step.unfinishedCount === 0) this.#move();
  }

  /** Whether events are done, or left to blocked models, that the cursor cannot pass. */
  get hasDoneBehind(): boolean {
    if (this.#finishedCount > 0) return true;
    return this.#steps.some(({ unfinishedCount, wantedCount }) => unfinishedCount < wantedCount);
  }

  #move(): void {
    let moved: Cursor | undefined;
    let wantedCount = 0;
    for (let step = this.#steps[0]; step?.unfinishedCount === 0; step = this.#steps[0]) {
      this.#steps.shift();
      this.#finishedCount += step.wantedCount;
      if (step.isPartial) continue;
      moved = step.next;
      wantedCount += this.#finishedCount;
      this.#finishedCount = 0;
    }
    if (moved !== undefined) this.#onMoved(moved, wantedCount);
  }
}

/**
 * Positions that one read serves: equal cursors and phases, in the order of slots. Those that have waited longest for a read come
 * first, so that a long backlog of some slots does not keep the others from being read.
 */
export function groupPositions(positions: Iterable<SlotPosition>): readonly (readonly SlotPosition[])[] {
  const sorted = [...positions].sort((one, other) => one.slot.slot - other.slot.slot);
  const groups = [...Map.groupBy(sorted, ({ phase, cursor }) => `${phase} ${cursor}`).values()];
  return groups.sort((one, other) => lastTurn(one) - lastTurn(other));
}

function lastTurn(group: readonly SlotPosition[]): number {
  return Math.min(...group.map(({ turn }) => turn));
}
