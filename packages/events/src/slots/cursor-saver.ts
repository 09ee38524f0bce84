import type { Cursor, CursorMove, HandlerCursors } from '@framework/core/adapter';

import { type WorkerContext, StoreBackoff, WakeSignal } from '../worker-context.js';
import type { HeldSlot } from './held-slot.js';

/** The position of a handler in a slot, and how many wanted events it has passed since the last save. */
export interface UnsavedCursor {
  readonly slot: HeldSlot;
  readonly cursor: Cursor;
  readonly wantedCount: number;
  /** Called with the number of wanted events that the saved cursor has passed since the last save. */
  readonly onSaved: (wantedCount: number) => void;
}

interface PendingCursor extends UnsavedCursor {
  readonly dueMs: number;
  /** When it must be saved at the latest, however often it moves. */
  readonly latestMs: number;
}

/**
 * Saves the cursors of all handlers of one database together and rarely; after a crash, events beyond the saved ones are handled
 * again.
 *
 * A cursor that passed wanted events is saved when it has rested for `cursorSaveMs`, or when it has passed `cursorSaveEvents` of
 * them, or after `cursorSaveMaxMs`: under load it causes few writes compared with the number of events. Saves are at least
 * `cursorSaveMinMs` apart, unless half of `unsavedMax` events have been passed: otherwise, a fast handler would reach that limit
 * and not read on until the next save.
 */
export class CursorSaver {
  readonly #context: WorkerContext;
  readonly #cursors: Pick<HandlerCursors, 'save'>;
  readonly #onLost: (tokens: readonly string[]) => void;
  readonly #wakeSignal: WakeSignal;
  readonly #pending = new Map<HeldSlot, PendingCursor>();
  #saving: Promise<void> = Promise.resolve();
  #savedMs = -Infinity;
  #dueMs = Infinity;
  /** Wanted events, of all handlers, that cursors have passed since the last save began. */
  #passedCount = 0;
  #stopped = false;

  constructor(
    context: WorkerContext,
    cursors: Pick<HandlerCursors, 'save'>,
    onLost: (tokens: readonly string[]) => void,
  ) {
    this.#context = context;
    this.#cursors = cursors;
    this.#onLost = onLost;
    this.#wakeSignal = new WakeSignal(context.clock);
  }

  moved(unsaved: UnsavedCursor): void {
    this.#passedCount += unsaved.wantedCount;
    if (this.#passedMany) this.#wakeSignal.wake();
    const earlier = this.#pending.get(unsaved.slot);
    if (earlier === undefined) return this.#remember(unsaved);
    const pending = together(earlier, unsaved);
    // Passing only unwanted events after wanted ones does not delay the save for the wanted ones.
    if (unsaved.wantedCount === 0) this.#pending.set(unsaved.slot, { ...earlier, ...pending });
    else this.#remember(pending, earlier.latestMs);
  }

  /** Saves at once all cursors that have passed wanted events, because a caller is waiting for that. */
  flushSoon(): void {
    for (const pending of this.#pending.values()) {
      if (pending.wantedCount > 0) this.#remember(pending, -Infinity);
    }
  }

  async run(): Promise<void> {
    const { clock, settings, ended } = this.#context;
    const backoff = new StoreBackoff(this.#context);
    while (!this.#stopped) {
      const earliestMs = this.#passedMany ? -Infinity : this.#savedMs + settings.cursorSaveMinMs;
      const waitMs = Math.max(this.#dueMs, earliestMs) - clock.elapsedMs();
      if (waitMs > 0) {
        await this.#wakeSignal.wait(waitMs === Infinity ? undefined : waitMs);
        continue;
      }
      await backoff.tried(() => this.save(false), ended);
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#wakeSignal.wake();
  }

  /**
   * Saves the cursors of slots that this process still holds, as soon as the save in progress is over.
   *
   * @param all whether cursors that are not due yet are saved, too
   */
  save(all: boolean): Promise<void> {
    const saved = this.#saving.catch(() => undefined).then(() => this.#save(all));
    this.#saving = saved;
    return saved;
  }

  /** Resolves when the save in progress has its answer. */
  settled(): Promise<void> {
    return this.#saving.catch(() => undefined);
  }

  get #passedMany(): boolean {
    return this.#passedCount >= this.#context.settings.unsavedMax / 2;
  }

  async #save(all: boolean): Promise<void> {
    const nowMs = this.#context.clock.elapsedMs();
    const taken: PendingCursor[] = [];
    this.#dueMs = Infinity;
    this.#passedCount = 0;
    for (const [slot, pending] of this.#pending) {
      if (all || pending.dueMs <= nowMs) {
        this.#pending.delete(slot);
        if (slot.held) taken.push(pending);
      } else {
        this.#dueMs = Math.min(this.#dueMs, pending.dueMs);
      }
    }
    if (taken.length === 0) return;
    this.#savedMs = nowMs;
    try {
      this.#onLost(await this.#cursors.save(taken.map(move)));
      for (const { onSaved, wantedCount } of taken) onSaved(wantedCount);
    } catch (error) {
      for (const pending of taken) this.#putBack(pending);
      throw error;
    }
  }

  /** Puts back a cursor that could not be saved: if it has moved since, its later position counts, with the events of both. */
  #putBack(failed: PendingCursor): void {
    const later = this.#pending.get(failed.slot);
    this.#remember(later === undefined ? failed : together(failed, later), failed.latestMs);
  }

  #remember(unsaved: UnsavedCursor, latestMs = Infinity): void {
    const { clock, settings } = this.#context;
    const { wantedCount } = unsaved;
    const nowMs = clock.elapsedMs();
    const wanted = wantedCount > 0;
    const enough = wantedCount >= settings.cursorSaveEvents;
    const restMs = wanted ? settings.cursorSaveMs : settings.cursorRestSaveMs;
    const maxMs = wanted ? settings.cursorSaveMaxMs : settings.cursorRestSaveMs;
    const pending = { ...unsaved, latestMs: Math.min(latestMs, nowMs + maxMs) };
    const dueMs = Math.min(pending.latestMs, enough ? nowMs : nowMs + restMs);
    this.#pending.set(unsaved.slot, { ...pending, dueMs });
    if (dueMs >= this.#dueMs) return;
    this.#dueMs = dueMs;
    this.#wakeSignal.wake();
  }
}

/** The later position, with the events of both. */
function together(earlier: UnsavedCursor, later: UnsavedCursor): UnsavedCursor {
  return { ...later, wantedCount: earlier.wantedCount + later.wantedCount };
}

function move({ slot: { handler, slot, token }, cursor }: UnsavedCursor): CursorMove {
  return { handler, slot, token, cursor };
}
