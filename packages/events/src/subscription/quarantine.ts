import type { Clock } from '@framework/core';
import type { DeliverableEvent, EventBatch } from '@framework/core/adapter';

import type { EngineSettings } from '../delivery-settings.js';
import type { HeldSlot } from '../slots/cursor-saver.js';
import type { EventBlocker } from './blocked-events.js';
import { type BlockedModelSet, modelKey } from './keyed-queue.js';

/**
 * For how long suspects are due already when they are blocked, a hundred years: a slot waits until they were tried, so that they
 * come before retries, which may be late by the time for which an outage, or a pause, has lasted.
 */
const dueSinceMs = 36_525 * 86_400_000;

/**
 * Where a slot stands whose holder vanished. `entering-quarantine`: what follows its cursor is blocked as it is read. `in-quarantine`: all
 * that the holder can have had is blocked, and tried alone. `open`: events are handled as they come, as in any other slot.
 */
export type QuarantinePhase = 'entering-quarantine' | 'in-quarantine' | 'open';

/** Where a handler stands in such a slot. */
interface EnteringPlace {
  readonly slot: HeldSlot;
  phase: QuarantinePhase;
  /** Wanted events that were blocked because the holder before vanished. */
  quarantinedCount: number;
}

/** Blocks what follows the cursor of a slot whose holder vanished: any of it may have killed that one. */
export class QuarantineIntake {
  readonly #handler: string;
  readonly #blocker: EventBlocker;
  readonly #blocked: BlockedModelSet;
  readonly #check: (event: DeliverableEvent, slot: HeldSlot) => void;
  /** As many as the holder before can have had beyond its saved cursor, and the last batch. */
  readonly #quarantinedMax: number;

  constructor(options: {
    readonly handler: string;
    readonly blocker: EventBlocker;
    readonly blocked: BlockedModelSet;
    /** Has a model looked at that may have no blocked events any more. */
    readonly check: (event: DeliverableEvent, slot: HeldSlot) => void;
    readonly settings: EngineSettings;
  }) {
    this.#handler = options.handler;
    this.#blocker = options.blocker;
    this.#blocked = options.blocked;
    this.#check = options.check;
    this.#quarantinedMax = options.settings.unsavedMax + 2 * options.settings.readMax;
  }

  /**
   * Blocks the events of a batch; the slot is in quarantine when they were the last that the holder before can have had.
   *
   * However large a transaction is, its cursor stood before all of it.
   *
   * @param events those of the batch that are wanted, of the slot
   * @returns false when the slot is another process's now
   */
  async take(
    position: EnteringPlace,
    events: readonly DeliverableEvent[],
    { more, partial = false }: Pick<EventBatch, 'more' | 'partial'>,
  ): Promise<boolean> {
    const { slot } = position;
    const suspects = events.map((event) => ({
      handler: this.#handler,
      event,
      attempts: 0,
      uncounted: 0,
      error: undefined,
      retryAfterMs: -dueSinceMs,
      dead: false,
      suspect: true,
    }));
    const { deletionCount } = this.#blocked;
    if (!(await this.#blocker.block(slot, suspects))) return false;
    const models = new Map(events.map((event) => [modelKey(event), event]));
    for (const model of models.keys()) this.#blocked.add(slot.slot, model);
    // Before the answer came, some may have been tried and found to be done: nobody would look at their models again.
    if (this.#blocked.deletionCount !== deletionCount)
      for (const event of models.values()) this.#check(event, slot);
    if (partial) return true;
    position.quarantinedCount += events.length;
    if (!more || position.quarantinedCount >= this.#quarantinedMax) position.phase = 'in-quarantine';
    return true;
  }
}

/**
 * Has attempts at blocked events, of all databases of a process, made side by side, or alone: so that it is known which one is to
 * blame when the process ends.
 *
 * One that takes long keeps the others out for a bounded time only. After each that was alone the others have their turn.
 */
export class QuarantineGate {
  readonly #clock: Clock;
  /** What runs, also when it was alone before. */
  readonly #running = new Set<Promise<void>>();
  readonly #waiting: (() => Promise<void>)[] = [];
  /** While one is alone, or waits for those that run to end. */
  #closed: Promise<void> | undefined;
  #takesTurns = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs work beside other work, when none is alone; resolves when it has ended. */
  async runBeside(work: () => Promise<void>): Promise<void> {
    while (this.#closed !== undefined) await this.#closed;
    await this.#run(work);
  }

  /**
   * Runs work when it is its turn, and what runs has ended, or was waited for long enough; resolves when it has ended.
   *
   * @param work gets a signal that is aborted from when on it is not alone: at once where others do not end in time
   * @param aloneMs for how long it waits, and for how long it is alone, at most
   */
  runAlone(work: (alone: AbortSignal) => Promise<void>, aloneMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(async () => {
        await this.#within(aloneMs, Promise.all(this.#running));
        const over = new AbortController();
        // What still runs may be what ends the process.
        if (this.#running.size > 0) over.abort();
        const running = this.#run(() => work(over.signal));
        running.then(resolve, reject);
        if (!over.signal.aborted) await this.#within(aloneMs, running);
        over.abort();
      });
      if (!this.#takesTurns) void this.#takeTurns();
    });
  }

  #run(work: () => Promise<void>): Promise<void> {
    const running = work().finally(() => this.#running.delete(running));
    this.#running.add(running);
    return running;
  }

  async #takeTurns(): Promise<void> {
    this.#takesTurns = true;
    for (let turn = this.#waiting.shift(); turn !== undefined; turn = this.#waiting.shift()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#closed = promise;
      await turn();
      this.#closed = undefined;
      resolve();
      // Those that have waited begin before the next one closes the gate.
      await promise;
    }
    this.#takesTurns = false;
  }

  async #within(durationMs: number, work: Promise<unknown>): Promise<void> {
    const over = new AbortController();
    const ended = work.then(
      () => undefined,
      () => undefined,
    );
    await Promise.race([ended, this.#clock.sleep(durationMs, over.signal)]);
    over.abort();
  }
}
