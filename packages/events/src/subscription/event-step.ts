import {
  type AttemptCounts,
  type BlockedFailure,
  type DeliverableEvent,
  comparePositions,
} from '@framework/core/adapter';

import { type AttemptVerdict, askedWaitMs, attemptVerdict, errorText } from '../call/attempt-failure.js';
import { retryAfterMs } from '../handler/event-handler.js';
import { type EventWork, type HeldSlot, modelKey } from '../slots/held-slot.js';
import type { HandlerDependencies, HandlerPolicy } from './subscription-dependencies.js';

/** For more models, repeating what is done is cheaper: a batch handler drains blocked models of a slot one after the other. */
const undoneModelsMax = 100;

/** Events that are neither done nor blocked, and must be tried again together. */
export interface PendingRetry {
  readonly works: readonly EventWork[];
  readonly slot: HeldSlot;
  /** How long to wait; `undefined` means as soon as calls are allowed again, because none was made. */
  readonly waitMs: number | undefined;
}

/** Whether a handler wants the events of an `event_type`. */
export function wantsEvent({ eventTypes }: HandlerPolicy, type: string): boolean {
  return eventTypes?.has(type) ?? true;
}

/** Handles events as they come from the log; blocks the model of an event that fails. */
export class EventStep {
  readonly #deps: HandlerDependencies;
  readonly #onBlocked: (slot: HeldSlot, kept: readonly EventWork[]) => void;
  /** Events that were read from a slot, and that this process leaves undone because the slot is being left. */
  readonly #undone = new WeakMap<HeldSlot, EventWork[]>();

  /** @param onBlocked called when models of a slot have been blocked, with the events that were kept until then */
  constructor(deps: HandlerDependencies, onBlocked: (slot: HeldSlot, kept: readonly EventWork[]) => void) {
    this.#deps = deps;
    this.#onBlocked = onBlocked;
  }

  /** How many events of a queue are taken together at most, and with how many bytes. */
  get takeMax(): { readonly count: number; readonly bytes: number } {
    const { policy, context } = this.#deps;
    return { count: policy.batchMax, bytes: context.settings.batchBytesMax };
  }

  /**
   * Handles events of one queue, in order, and leaves those of blocked models in the log; those that are neither finished nor returned
   * belong to another process.
   *
   * @param attempt the number of this attempt at these events, from 1
   * @returns those that must be tried again together
   */
  async run(works: readonly EventWork[], attempt: number): Promise<PendingRetry | undefined> {
    const { context, policy, caller } = this.#deps;
    const handled: EventWork[] = [];
    for (const work of works) {
      if (!work.slot.held) continue;
      if (isLeft(work)) leave(work);
      else handled.push(work);
    }
    const [first] = handled;
    if (first === undefined || context.ended.aborted) return undefined;
    const { slot, event } = first;
    const events = handled.map((work) => work.event);
    const outcome = await caller.call(events, attempt, slot);
    if (outcome.kind === 'done') finish(handled);
    if (outcome.kind === 'held-back') return { works: handled, slot, waitMs: undefined };
    // The rows of models are written behind what is done before the slot is given back.
    if (outcome.kind === 'dropped' && slot.held && !context.ended.aborted) this.leaveUndone(handled);
    if (outcome.kind === 'partly-failed') {
      const { errors, isEnded = false } = outcome;
      const isDone = ({ event: { id } }: EventWork): boolean => !errors.has(id);
      const stateOf = (work: EventWork): FailedState =>
        this.#failed(work.event, 1, errors.get(work.event.id), !isEnded);
      const untried = isEnded ? worksLeftInOrder(handled, isDone) : new Set<EventWork>();
      const [held, blocked] = [[...untried], handled.filter((work) => !untried.has(work))];
      await this.#block(blocked, slot, stateOf, isDone);
      finish(held.filter(isDone));
      await this.#hold(
        held.filter((work) => !isDone(work)),
        slot,
      );
    }
    if (outcome.kind !== 'failed') return undefined;
    const { error } = outcome;
    const eventCount = handled.length;
    if (policy.waitsWhenFailed) {
      const waitMs = uncountedWaitMs(policy, attempt, error, context.random());
      caller.report({ event, eventCount, attempt, error, counted: false, retryAfterMs: waitMs });
      return { works: handled, slot, waitMs };
    }
    const failed = this.#failed(event, eventCount, error);
    await this.#block(handled, slot, () => failed);
    for (const [key, own] of Map.groupBy(events, modelKey)) slot.blocked.get(key)?.halve(own);
    return undefined;
  }

  /** Leaves events to the next holder of their slots; batches of drained ones end when none of their other events is being handled. */
  leaveUndone(works: readonly EventWork[]): void {
    for (const work of works) {
      const { batch, slot } = work;
      if (batch === undefined) {
        const undone = this.#undone.get(slot);
        if (undone === undefined) this.#undone.set(slot, [work]);
        else undone.push(work);
      } else {
        batch.isLeft = true;
        if (--batch.unfinishedCount === 0) batch.onEnded(false);
      }
    }
  }

  /** Blocks the models of events that a slot leaves undone, each at the first of them: the cursor passes these, and what is done behind. */
  async blockUndone(slot: HeldSlot): Promise<void> {
    // A call that was abandoned has earlier events than what waited behind it.
    const works = (this.#undone.get(slot)?.splice(0) ?? []).toSorted((one, other) =>
      comparePositions(one.event, other.event),
    );
    // Nothing can be written any more, so nothing may be left.
    if (this.#deps.context.ended.aborted) return;
    const untried: EventWork[] = [];
    for (const work of works) {
      // Its row could not be written.
      if (slot.blocked.get(modelKey(work.event))?.phase === 'blocking') continue;
      if (isLeft(work)) leave(work);
      else untried.push(work);
    }
    const modelCount = new Set(untried.map(({ event }) => modelKey(event))).size;
    if (modelCount <= undoneModelsMax) await this.#hold(untried, slot);
  }

  /**
   * Blocks the models of events that were not tried, each at the first of them. They have not failed: a version that does not want them passes
   * over them, and others are read in batches.
   */
  async #hold(works: readonly EventWork[], slot: HeldSlot): Promise<void> {
    const { handler, token } = slot;
    const byModel = Map.groupBy(works, ({ event }) => modelKey(event)).values();
    const heads = [...byModel].flatMap((own) => own.slice(0, 1)).map(({ event }) => event);
    const recoveries = heads.map((event) => slot.recoveryOf(event, 'blocking'));
    const holds = heads.map((event) => ({ handler, token, event }));
    if (!(await this.#deps.writes.hold.add(slot, ...holds)) || !slot.held) return;
    const kept = recoveries.flatMap((recovery, index) => recovery.wait(heads[index]));
    for (const work of works) leave(work);
    this.#onBlocked(slot, kept);
  }

  /**
   * Blocks models, each at its first event that is not done; a model without one is done.
   *
   * @param works those of each model in order
   * @param stateOf how such a first event has failed
   */
  async #block(
    works: readonly EventWork[],
    slot: HeldSlot,
    stateOf: (work: EventWork) => FailedState,
    isDone: (work: EventWork) => boolean = () => false,
  ): Promise<void> {
    const { handler, token } = slot;
    const blocked = [...Map.groupBy(works, ({ event }) => modelKey(event)).values()].flatMap((own) => {
      const head = own.find((work) => !isDone(work));
      if (head === undefined) {
        finish(own);
        return [];
      }
      const { event } = head;
      const doneIds = own
        .slice(own.indexOf(head))
        .filter(isDone)
        .map((work) => work.event.id);
      const recovery = slot.recoveryOf(event, 'blocking');
      recovery.interrupt();
      const failed = { handler, token, event, attempt: undefined, ...rowOf(stateOf(head)) };
      const failure = { ...failed, doneIds: [...recovery.doneIdsFrom(event), ...doneIds] };
      return { recovery, failure, own };
    });
    if (!(await this.#deps.writes.fail.add(slot, ...blocked.map(({ failure }) => failure))) || !slot.held)
      return;
    const kept = blocked.flatMap(({ recovery, failure }) => recovery.wait(failure.event, failure.doneIds));
    for (const { own } of blocked) for (const work of own) leave(work);
    this.#onBlocked(slot, kept);
  }

  /**
   * How the events of a failed call are blocked. If there are several, it is not known yet which one caused the failure: each is tried
   * alone before one of them uses an attempt.
   *
   * @param event the first one, or the only one
   * @param isReported false for events that were not tried, because the process hands them over
   */
  #failed(event: DeliverableEvent, eventCount: number, thrown: unknown, isReported = true): FailedState {
    const { policy, context, caller } = this.#deps;
    const verdict = attemptVerdict(thrown);
    let failed = failedState(policy, { attempts: 0, uncounted: 0 }, thrown, verdict, context.random());
    if (verdict !== 'outage' && eventCount > 1) {
      const { error, uncounted } = failed;
      const afterMs = retryAfterMs(policy.retry, 1, context.random());
      failed = { attempts: 0, uncounted, error, retryAfterMs: afterMs };
    }
    const { attempts, retryAfterMs: afterMs } = failed;
    const counted = attempts > 0;
    if (isReported)
      caller.report({ event, eventCount, attempt: 1, error: thrown, counted, retryAfterMs: afterMs });
    return failed;
  }
}

/** How an event has failed. Without a time until the next attempt, it is a dead letter. */
export type FailedState = Pick<BlockedFailure, 'attempts' | 'uncounted' | 'error' | 'retryAfterMs'>;

/** What the row of a failed event says about it. */
export function rowOf(state: FailedState): FailedState & Pick<BlockedFailure, 'dead'> {
  return { ...state, dead: state.retryAfterMs === undefined };
}

/** How a failed call changes the counts of its event, and when the event is tried again. */
export function failedState(
  policy: HandlerPolicy,
  { attempts, uncounted }: AttemptCounts,
  thrown: unknown,
  verdict: AttemptVerdict,
  random: number,
): FailedState {
  const { retry } = policy;
  const error = errorText(thrown);
  if (verdict === 'outage') {
    const afterMs = uncountedWaitMs(policy, uncounted + 1, thrown, random);
    return { attempts, uncounted: uncounted + 1, error, retryAfterMs: afterMs };
  }
  const made = attempts + 1;
  const dead = verdict === 'final' || made >= retry.attemptsMax;
  return {
    attempts: made,
    uncounted,
    error,
    retryAfterMs: dead ? undefined : retryAfterMs(retry, made, random),
  };
}

/**
 * Removes the first items from a list: at most so many and so many bytes, but at least one.
 *
 * @param bytesOf the bytes of an item; `undefined` if it does not count
 */
export function takeFirst<Item>(
  items: Item[],
  { count: countMax, bytes: bytesMax = Infinity }: { readonly count: number; readonly bytes?: number },
  bytesOf: (item: Item) => number | undefined,
): readonly Item[] {
  let [count, bytes, taken] = [0, 0, 0];
  for (const item of items) {
    const own = bytesOf(item);
    if (own !== undefined) {
      bytes += own;
      if (count === countMax || (bytes > bytesMax && count > 0)) break;
      count++;
    }
    taken++;
  }
  return items.splice(0, taken);
}

/** Whether an event stays in the log, because its model is blocked. */
export function isLeft(work: EventWork): boolean {
  return work.slot.blocked.get(modelKey(work.event))?.admits(work) === false;
}

/** The events of models of which only the last events are left undone. Those of a model that is being drained have a row already. */
function worksLeftInOrder(
  works: readonly EventWork[],
  isDone: (work: EventWork) => boolean,
): ReadonlySet<EventWork> {
  const byModel = [...Map.groupBy(works, ({ event }) => modelKey(event)).values()];
  const inOrder = byModel.filter((own) => {
    const firstLeft = own.findIndex((work) => !isDone(work));
    return own.every(({ batch }) => batch === undefined) && own.findLastIndex(isDone) < firstLeft;
  });
  return new Set(inOrder.flat());
}

function leave(work: EventWork): void {
  if (work.batch === undefined) work.slot.blocked.get(modelKey(work.event))?.leave(work.event);
  work.onFinished();
}

/** Reports that events are done, or left to their blocked models. */
export function finish(works: Iterable<EventWork>): void {
  for (const { onFinished } of works) onFinished();
}

/**
 * How long to wait after a call that did not count, in milliseconds: as long as what was thrown asks for, or else the backoff of
 * outages, which earlier failed attempts do not lengthen.
 *
 * @param calls how many such calls were made, from 1
 * @param random a number from 0 to 1
 */
function uncountedWaitMs(
  { retry, outageBackoffMaxMs }: HandlerPolicy,
  calls: number,
  thrown: unknown,
  random: number,
): number {
  return askedWaitMs(thrown, random) ?? retryAfterMs(retry, calls, random, outageBackoffMaxMs);
}
