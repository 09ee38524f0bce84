import type { Cursor } from '@framework/core';

/** Events of one slot that were read together: the cursor may move beyond them when all are done or parked. */
export interface ProgressStep {
  readonly next: Cursor;
  unfinishedCount: number;
  readonly wantedCount: number;
}

/** How far one handler's cursor may move in one slot: up to the first event that is neither done nor parked. */
export class SlotProgress {
  readonly #steps: ProgressStep[] = [];
  readonly #onMoved: (cursor: Cursor, wantedCount: number) => void;

  /** @param onMoved called with the new place, and how many wanted events lie between the one before and it */
  constructor(onMoved: (cursor: Cursor, wantedCount: number) => void) {
    this.#onMoved = onMoved;
  }

  /** Adds what follows all earlier steps; one without events is finished at once. */
  add(next: Cursor, wantedCount: number): ProgressStep {
    const step: ProgressStep = { next, unfinishedCount: wantedCount, wantedCount };
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
      moved = step.next;
      wantedCount += step.wantedCount;
    }
    if (moved !== undefined) this.#onMoved(moved, wantedCount);
  }
}
