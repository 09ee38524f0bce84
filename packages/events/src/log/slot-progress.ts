import type { Cursor } from '@framework/core';

/** Events of one slot that were read together: the cursor may move beyond them when all are done or parked. */
export interface ProgressStep {
  readonly next: Cursor;
  /** Whether it ends within a transaction, of which more follows. */
  readonly isPartial: boolean;
  unfinishedCount: number;
  readonly wantedCount: number;
}

/**
 * How far one handler's cursor may move in one slot: up to the first event that is neither done nor parked, and never into a
 * transaction, because a place within one is not saved.
 */
export class SlotProgress {
  readonly #steps: ProgressStep[] = [];
  readonly #onMoved: (cursor: Cursor, wantedCount: number) => void;
  /** Wanted events of a transaction that are behind the cursor when all of it is. */
  #partCount = 0;

  /** @param onMoved called with the new place, and how many wanted events lie between the one before and it */
  constructor(onMoved: (cursor: Cursor, wantedCount: number) => void) {
    this.#onMoved = onMoved;
  }

  /** Adds what follows all earlier steps; one without events is finished at once. */
  add(next: Cursor, wantedCount: number, isPartial = false): ProgressStep {
    const step: ProgressStep = { next, isPartial, unfinishedCount: wantedCount, wantedCount };
    this.#steps.push(step);
    if (wantedCount === 0) this.#move();
    return step;
  }

  /** Says that one event of a step is done or parked. */
  finish(step: ProgressStep): void {
    step.unfinishedCount--;
    if (step.unfinishedCount === 0) this.#move();
  }

  #move(): void {
    let moved: Cursor | undefined;
    let wantedCount = 0;
    for (let step = this.#steps[0]; step?.unfinishedCount === 0; step = this.#steps[0]) {
      this.#steps.shift();
      this.#partCount += step.wantedCount;
      if (step.isPartial) continue;
      moved = step.next;
      wantedCount += this.#partCount;
      this.#partCount = 0;
    }
    if (moved !== undefined) this.#onMoved(moved, wantedCount);
  }
}
