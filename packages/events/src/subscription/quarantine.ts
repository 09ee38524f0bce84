import type { Clock } from '@framework/core';
import type { DeliverableEvent, EventBatch } from '@framework/core/adapter';

import type { EngineSettings } from '../delivery-settings.js';
import type { HeldSlot } from '../slots/held-slot.js';
import type { EventBlocker } from './blocked-events.js';
import { type BlockedModelSet, modelKey } from './keyed-queue.js';

/**
 * Suspects are blocked as if they had been due for a hundred years. A slot waits until they have been tried, so they must come
 * before retries, which may be overdue by as long as an outage or a pause has lasted.
 */
const dueSinceMs = 36_525 * 86_400_000;

/**
 * The phases of a slot whose holder died. `entering-quarantine`: events after its cursor are blocked as they are read.
 * `in-quarantine`: everything that the holder may have read is blocked, and tried alone. `open`: events are handled as in any
 * other slot.
 */
export type QuarantinePhase = 'entering-quarantine' | 'in-quarantine' | 'open';

/** The position of a handler in a slot whose holder died. */
interface EnteringPlace {
  readonly slot: HeldSlot;
  phase: QuarantinePhase;
  /** Wanted events that were blocked because the previous holder died. */
  quarantinedCount: number;
}

/** Blocks the events after the cursor of a slot whose holder died: any of them may have killed it. */
export class QuarantineIntake {
  readonly #handler: string;
  readonly #blocker: EventBlocker;
  readonly #blocked: BlockedModelSet;
  readonly #check: (event: DeliverableEvent, slot: HeldSlot) => void;
  /** As many as the previous holder may have read beyond its saved cursor, and the last batch. */
  readonly #quarantinedMax: number;

  constructor(options: {
    readonly handler: string;
    readonly blocker: EventBlocker;
    readonly blocked: BlockedModelSet;
    /** Checks a model whose last blocked event may be gone. */
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
   * Blocks the events of a batch; the slot is in quarantine once this was the last batch that the previous holder may have read.
   *
   * A transaction is always blocked as a whole, however large it is: the previous holder's saved cursor was before all of it.
   *
   * @param events the wanted events of the slot in the batch
   * @returns false when the slot belongs to another process now
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
    // Some may have been tried and finished before the answer came; nothing else would check their models again.
    if (this.#blocked.deletionCount !== deletionCount)
      for (const event of models.values()) this.#check(event, slot);
    if (partial) return true;
    position.quarantinedCount += events.length;
    if (!more || position.quarantinedCount >= this.#quarantinedMax) position.phase = 'in-quarantine';
    return true;
  }
}

/**
 * Runs the attempts at blocked events of all databases of a process, in parallel or alone, so that it is clear which event is to
 * blame if the process dies.
 *
 * A long attempt keeps the others out only for a limited time. Before the next lone attempt begins, waiting ones that need not be
 * alone may run.
 */
export class QuarantineGate {
  readonly #clock: Clock;
  /** The running attempts, including those that were alone before. */
  readonly #running = new Set<Promise<void>>();
  readonly #waiting: (() => Promise<void>)[] = [];
  /** Set while an attempt is alone, or waits for the running ones to end. */
  #closed: Promise<void> | undefined;
  #takesTurns = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs work in parallel with other work, but not while an attempt is alone; resolves when it has ended. */
  async runBeside(work: () => Promise<void>): Promise<void> {
    while (this.#closed !== undefined) await this.#closed;
    await this.#run(work);
  }

  /**
   * Runs work when it is first in line, and the running work has ended or was waited for long enough; resolves when it has ended.
   *
   * @param work gets a signal that is aborted when it is no longer alone: at once if the others do not end in time
   * @param aloneMs the longest time that it waits, and the longest time that it is alone
   */
  runAlone(work: (alone: AbortSignal) => Promise<void>, aloneMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(async () => {
        await this.#within(aloneMs, Promise.all(this.#running));
        const over = new AbortController();
        // If the process ends, the cause may be something that is still running.
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
      // Work that has waited for the gate begins before the next attempt closes it.
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
