import type { Cursor, SlotLease } from '@framework/core/adapter';

/**
 * A slot that this process holds for a handler, until it is lost. Code that works in the slot first checks that it is still held.
 */
export class HeldSlot {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  readonly token: string;
  /**
   * Whether the previous holder died while holding it, or this process's event loop stopped for too long: any event beyond the
   * cursor may have been the cause.
   */
  readonly abandoned: boolean;
  readonly #lost = new AbortController();

  constructor({ handler, slot, token, abandoned }: SlotLease) {
    this.handler = handler;
    this.slot = slot;
    this.token = token;
    this.abandoned = abandoned;
  }

  /** Whether this process still holds the slot; false for ever once the slot is lost or given back. */
  get held(): boolean {
    return !this.#lost.signal.aborted;
  }

  /** Aborted when the slot is lost or given back. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  lose(): void {
    this.#lost.abort(new Error(`This process no longer holds slot ${this.slot} of handler ${this.handler}`));
  }
}

/** Events of one slot that were read together: the cursor may move beyond them when all are done or blocked. */
export interface ProgressStep {
  readonly next: Cursor;
  /** Whether the step ends within a transaction that continues after it. */
  readonly isPartial: boolean;
  unfinishedCount: number;
  readonly wantedCount: number;
}

/**
 * How far one handler's cursor may move in one slot: up to the first event that is neither done nor blocked, and never into a
 * transaction, because a position within one cannot be saved.
 */
export class SlotProgress {
  readonly #steps: ProgressStep[] = [];
  readonly #onMoved: (cursor: Cursor, wantedCount: number) => void;
  /**
   * How many wanted events are finished in a transaction that is not finished itself; the cursor passes them together with the
   * rest of it.
   */
  #partCount = 0;

  /** @param onMoved called with the new position, and the number of wanted events between the previous one and it */
  constructor(onMoved: (cursor: Cursor, wantedCount: number) => void) {
    this.#onMoved = onMoved;
  }

  /** Adds a step after all earlier ones; one without events is finished at once. */
  add(next: Cursor, wantedCount: number, isPartial = false): ProgressStep {
    const step: ProgressStep = { next, isPartial, unfinishedCount: wantedCount, wantedCount };
    this.#steps.push(step);
    if (wantedCount === 0) this.#move();
    return step;
  }

  /** Records that one event of a step is done or blocked. */
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
