import type { Cursor, CursorMove } from '@framework/core';
import { elapsedMs } from '../delivery-clock.js';
import type { HeldSlot } from '../lease/held-slot.js';
import { Alarm } from '../waking/alarm.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';

/** Where one handler stands in one slot, and how many wanted events it passed since that was saved. */
export interface UnsavedCursor {
  readonly handler: string;
  readonly slot: HeldSlot;
  readonly cursor: Cursor;
  readonly wantedCount: number;
  /** Called with the count of wanted events that are behind a saved cursor now. */
  readonly onSaved: (wantedCount: number) => void;
}

/** Saves the cursors of all handlers of one database together and rarely: what it has not saved, a crash repeats. */
export class CursorSaver {
  readonly #context: WorkerContext;
  readonly #onLost: (slots: readonly number[]) => void;
  readonly #alarm: Alarm;
  readonly #pending = new Map<string, UnsavedCursor>();
  #saving: Promise<void> = Promise.resolve();
  #urgentMs: number | undefined;
  #restMs: number | undefined;
  #stopped = false;

  constructor(context: WorkerContext, onLost: (slots: readonly number[]) => void) {
    this.#context = context;
    this.#onLost = onLost;
    this.#alarm = new Alarm(context.clock);
  }

  /** Remembers a cursor to be saved; soon when it passed wanted events, else whenever it suits. */
  moved(unsaved: UnsavedCursor): void {
    const key = `${unsaved.handler} ${unsaved.slot.slot}`;
    const earlier = this.#pending.get(key);
    const wantedCount = unsaved.wantedCount + (earlier?.slot === unsaved.slot ? earlier.wantedCount : 0);
    this.#pending.set(key, { ...unsaved, wantedCount });
    this.#due(wantedCount > 0);
  }

  /** Saves at once what passed wanted events, because somebody waits for it. */
  hurry(): void {
    if (this.#urgentMs === undefined) return;
    this.#urgentMs = -Infinity;
    this.#alarm.ring();
  }

  /** Saves when it is time, until it is stopped. */
  async run(): Promise<void> {
    const backoff = storeBackoff(this.#context);
    while (!this.#stopped) {
      const nowMs = elapsedMs(this.#context.clock);
      const dueMs = Math.min(this.#urgentMs ?? Infinity, this.#restMs ?? Infinity);
      if (dueMs > nowMs) {
        await this.#alarm.wait(dueMs === Infinity ? undefined : dueMs - nowMs);
        continue;
      }
      try {
        await this.save(this.#restMs !== undefined && this.#restMs <= nowMs);
        backoff.succeeded();
      } catch (error) {
        this.#context.onError(error);
        await backoff.failed(this.#context.ended);
      }
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#alarm.ring();
  }

  /**
   * Saves now what is still held, after what is being saved already.
   *
   * @param all also cursors that passed only unwanted events
   */
  save(all: boolean): Promise<void> {
    const saved = this.#saving.catch(() => undefined).then(() => this.#save(all));
    this.#saving = saved;
    return saved;
  }

  async #save(all: boolean): Promise<void> {
    this.#urgentMs = undefined;
    if (all) this.#restMs = undefined;
    const taken = new Map<string, UnsavedCursor>();
    for (const [key, pending] of this.#pending) {
      if (!all && pending.wantedCount === 0) continue;
      this.#pending.delete(key);
      if (pending.slot.held) taken.set(key, pending);
    }
    if (taken.size === 0) return;
    try {
      this.#onLost(await this.#context.store.saveCursors([...taken.values()].map(move)));
      for (const { onSaved, wantedCount } of taken.values()) onSaved(wantedCount);
    } catch (error) {
      for (const [key, pending] of taken) this.#putBack(key, pending);
      throw error;
    }
  }

  /** Nothing was saved: the later place counts, with the events of both. */
  #putBack(key: string, failed: UnsavedCursor): void {
    const later = this.#pending.get(key);
    const wantedCount = failed.wantedCount + (later?.slot === failed.slot ? later.wantedCount : 0);
    this.#pending.set(key, { ...(later ?? failed), wantedCount });
    this.#due(wantedCount > 0);
  }

  #due(urgent: boolean): void {
    const { clock, settings } = this.#context;
    if (urgent && this.#urgentMs === undefined) {
      this.#urgentMs = elapsedMs(clock) + settings.cursorSaveMs;
      this.#alarm.ring();
    }
    if (!urgent && this.#restMs === undefined) {
      this.#restMs = elapsedMs(clock) + settings.cursorRestSaveMs;
      this.#alarm.ring();
    }
  }
}

function move({ handler, slot, cursor }: UnsavedCursor): CursorMove {
  return { handler, slot: slot.slot, token: slot.token, cursor };
}
