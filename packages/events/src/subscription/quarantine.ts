import type { Clock } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';

import { within } from '../worker-context.js';
import type { BlockedWrites } from './batched-writes.js';
import { type HeldSlot, type ModelRecovery, modelKey } from '../slots/held-slot.js';

/**
 * The phases of a slot whose holder died. `entering-quarantine`: the models of events after its cursor are blocked as they are read.
 * `in-quarantine`: those of everything that the holder may have read are, and their events are tried one by one. `open`: events are
 * handled as in any other slot.
 */
export type QuarantinePhase = 'entering-quarantine' | 'in-quarantine' | 'open';

/**
 * Blocks the models of events after the cursor of a slot whose holder died, because any of them may have killed it: they are tried one
 * by one.
 *
 * @param events the next wanted events of the slot
 * @returns the models with suspects; `undefined` when the slot belongs to another process now
 */
export async function holdSuspects(
  slot: HeldSlot,
  events: readonly DeliverableEvent[],
  holds: BlockedWrites['hold'],
): Promise<readonly ModelRecovery[] | undefined> {
  const { handler, token, blocked } = slot;
  const byModel = Map.groupBy(events, (event) => modelKey(event));
  const added: DeliverableEvent[] = [];
  const suspects: ModelRecovery[] = [];
  for (const [key, own] of byModel) {
    const [first] = own;
    if (first === undefined) continue;
    if (!blocked.has(key)) added.push(first);
    const recovery = slot.recoveryOf(first, 'blocking');
    // No process can have been handling events behind a failed one.
    if (!recovery.hasFailed) {
      recovery.suspectCount += own.length;
      suspects.push(recovery);
    }
    for (const event of own) recovery.leave(event);
  }
  if (added.length > 0 && !(await holds.add(slot, ...added.map((event) => ({ handler, token, event })))))
    return undefined;
  for (const event of added) blocked.get(modelKey(event))?.wait(event);
  return slot.held ? suspects : undefined;
}

/**
 * Runs the attempts at the heads of blocked models of all databases of a process, in parallel or alone, so that it is clear which event is to
 * blame if the process dies.
 *
 * A long attempt keeps the others out only for a limited time. Before the next lone attempt begins, waiting ones that need not be
 * alone may run.
 */
export class QuarantineGate {
  readonly #clock: Clock;
  /** The running attempts, including those that were alone before. */
  readonly #running = new Set<Promise<void>>();
  /** Set while an attempt is alone, or waits for the running ones to end. */
  #closed: Promise<void> | undefined;
  /** Resolves at the end of the last turn that an attempt has to be alone; `undefined` if there is none. */
  #lastTurn: Promise<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs work in parallel with other work, but not while an attempt is alone; resolves when it has ended. */
  async runShared(work: () => Promise<void>): Promise<void> {
    while (this.#closed !== undefined) await this.#closed;
    await this.#run(work);
  }

  /**
   * Runs work when it is first in line, and the running work has ended or was waited for long enough; resolves when it has ended.
   *
   * @param work gets a signal that is aborted when it is no longer alone: at once if the others do not end in time
   * @param aloneMs the longest time that it waits, and the longest time that it is alone
   */
  async runIsolated(work: (alone: AbortSignal) => Promise<void>, aloneMs: number): Promise<void> {
    const turn = Promise.withResolvers<void>();
    const earlier = this.#lastTurn;
    this.#lastTurn = turn.promise;
    if (earlier !== undefined) {
      await earlier;
      // Work that has waited for the gate begins before this attempt closes it again.
      await Promise.resolve();
    }
    this.#closed = turn.promise;
    await within(this.#clock, aloneMs, Promise.allSettled(this.#running));
    const over = new AbortController();
    // If the process ends, the cause may be something that is still running.
    if (this.#running.size > 0) over.abort();
    const running = this.#run(() => work(over.signal));
    if (!over.signal.aborted) await within(this.#clock, aloneMs, Promise.allSettled([running]));
    over.abort();
    this.#closed = undefined;
    if (this.#lastTurn === turn.promise) this.#lastTurn = undefined;
    turn.resolve();
    await running;
  }

  #run(work: () => Promise<void>): Promise<void> {
    const running = work().finally(() => this.#running.delete(running));
    this.#running.add(running);
    return running;
  }
}
