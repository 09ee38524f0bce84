import {
  type AttemptCounts,
  type BlockedAttempt,
  type BlockedHead,
  type BlockedModel,
  type DeliverableEvent,
  type ModelPosition,
  positionAfter,
  randomUuid,
} from '@framework/core/adapter';

import { attemptVerdict, errorText } from '../call/attempt-failure.js';
import type { HandlerOutcome } from '../call/handler-caller.js';
import { retryAfterMs } from '../handler/event-handler.js';
import type { HeldSlot, ModelRecovery } from '../slots/held-slot.js';
import { StoreBackoff, untilAborted } from '../worker-context.js';
import { type FailedState, failedState, rowOf, takeFirst, wantsEvent } from './event-step.js';
import type { HandlerDependencies } from './subscription-dependencies.js';

type FailedCall = Extract<HandlerOutcome, { readonly kind: 'failed' | 'partly-failed' }>;

/** The longest time until an event that this version of the handler does not want is looked at again. */
const unwantedMaxMs = 300_000;

/** How long after it was read a head may be tried without making sure that no operator has skipped it. */
export const freshMs = 250;

/** The maximum number of tries to take an attempt back once delivery must end; before that, there is no limit. */
const lastTriesMax = 3;

/** Events of a blocked model that are to be tried next. */
export interface Trial {
  readonly head: BlockedHead;
  /** Events behind the head that are tried in the same attempt, because they are suspects as well. */
  readonly behind: readonly DeliverableEvent[];
  /** When it was read. */
  readonly readMs: number;
}

/** The head of a blocked model, which is to be tried next. */
export interface RetryWork extends Trial {
  readonly head: BlockedHead & { readonly event: DeliverableEvent };
  readonly model: ModelRecovery;
  /** Aborted once other heads may be tried beside this one; `undefined` if they may be from the start. */
  readonly alone: AbortSignal | undefined;
  /** Called once when the attempt has ended. */
  readonly onEnded: (end: AttemptEnd) => void;
}

/**
 * How an attempt has ended: with the head done; `failed`, which is recorded; `left`, because it must be made again, here or by another
 * process; or `untried`, because it was not begun. An untried attempt that is recorded already is still open.
 */
export type AttemptEnd = DoneAttempt | 'failed' | 'left' | 'untried';

/** A successful attempt at the head of a blocked model, not yet recorded. */
export interface DoneAttempt {
  /** `undefined` if it was not recorded. */
  readonly attempt: BlockedAttempt | undefined;
  readonly startedMs: number;
  /** Everything before this is done. */
  readonly position: ModelPosition;
  /** How many events were passed. */
  readonly count: number;
}

/**
 * Tries the heads of blocked models.
 *
 * An attempt at a suspect is recorded before it is made, because it may end the process, or stop its event loop. If it is made alone, it
 * is counted beforehand, because only its event can be to blame. All other attempts are made without a record, as calls with new events
 * are: if a process dies in one, the next holder of the slot has suspects. Only an operator may have skipped a head that was read a while
 * ago, so recording the attempt makes sure that it is still the head.
 */
export class RetryStep {
  readonly #deps: HandlerDependencies;
  /** Heads without attempts left, whose last attempt may yet be taken back by a process that is alive. */
  readonly #lastChances = new Set<string>();
  /** Types of failed events that the handler does not want and that have been reported. */
  readonly #unwantedTypes = new Set<string>();

  constructor(deps: HandlerDependencies) {
    this.#deps = deps;
  }

  /** Makes one attempt, and records a failure. */
  async run(work: RetryWork): Promise<AttemptEnd> {
    const { head, model, alone } = work;
    const { slot } = model;
    if (!slot.held || this.#deps.context.ended.aborted) return 'untried';
    const startedMs = this.#deps.watch.now();
    if (head.hasFailed && !wantsEvent(this.#deps.policy, head.event.type)) {
      await this.#keepUnwanted(head, slot);
      return 'failed';
    }
    // If no attempt is open, `attemptsMax` has been lowered since: then one more attempt is made, and the dead letter gets the
    // error of that one.
    if (head.openCount > 0 && head.attempts >= this.#deps.policy.retry.attemptsMax) {
      await this.#giveUp(head, slot);
      return 'failed';
    }
    this.#lastChances.delete(chanceKey(head));
    // It may be recorded already.
    let { attempt } = model;
    const mayEndProcess = model.suspectCount > 0 || alone !== undefined;
    if (attempt === undefined && (mayEndProcess || startedMs - work.readMs > freshMs)) {
      attempt = { id: randomUuid(), counted: alone?.aborted === false };
      if (!(await this.#begin(head, attempt, slot))) return 'left';
    }
    const call = this.#callEach(work);
    if (attempt !== undefined)
      attempt = await this.#refundIfConcurrent(attempt, { ...work, startedMs, call });
    const { outcome, at, ...passed } = await call;
    if (outcome.kind === 'done' || (outcome.kind === 'held-back' && passed.count > 0))
      return { attempt, startedMs, ...passed };
    if (outcome.kind === 'held-back' || outcome.kind === 'dropped') {
      if (outcome.kind === 'held-back') await this.giveBack(head, attempt);
      else await this.endUnrecorded(head, { attempt, startedMs });
      return 'left';
    }
    const failed = this.#failed(at, outcome);
    const isRecorded = await this.#record(at, attempt, slot, failed);
    // The lease ended before the outcome was recorded: a failure of the event itself stays counted, and was reported.
    if (!isRecorded && failed.uncounted > at.uncounted)
      await this.endUnrecorded(head, { attempt, startedMs });
    return 'failed';
  }

  /** Calls the handler with one event after the other, up to the first one that is not done; a batch handler gets several at once. */
  async #callEach({ head, behind, model: { slot } }: RetryWork): Promise<TrialOutcome> {
    const { policy, caller, context } = this.#deps;
    const bytesMax = context.settings.batchBytesMax;
    const events = [head.event, ...behind];
    let [position, count]: [ModelPosition, number] = [head.position, 0];
    let countMax = behind.length > 0 && policy.batches ? policy.batchMax : 1;
    while (events.length > 0) {
      const at = count === 0 ? head : atEvent(head, events[0]);
      if (count > 0 && slot.isLeaving) return { outcome: { kind: 'held-back' }, at, position, count };
      const part = takeFirst(events, { count: countMax, bytes: bytesMax }, ({ bytes = 0 }) => bytes);
      const wanted = part.filter(({ type }) => wantsEvent(policy, type));
      const outcome = await caller.call(wanted, head.attempts + 1, slot);
      if (outcome.kind === 'failed' && part.length > 1) {
        // It is not known yet which of them has failed: each is called alone, and only then uses an attempt.
        const told = { event: at.event, attempt: head.attempts + 1, error: outcome.error, retryAfterMs: 0 };
        caller.report({ ...told, counted: false, eventCount: part.length });
        countMax = 1;
        events.unshift(...part);
        continue;
      }
      if (outcome.kind === 'partly-failed') return partOf(outcome, { head, part, count });
      if (outcome.kind !== 'done') return { outcome, at, position, count };
      position = positionAfter(part.at(-1) ?? position);
      count += part.length;
    }
    return { outcome: { kind: 'done' }, at: head, position, count };
  }

  /**
   * Takes the count back if the attempt stops being alone before the call is over: from then on other events may be what ends the
   * process.
   *
   * @returns the recorded attempt when the call is over
   */
  async #refundIfConcurrent(
    begun: BlockedAttempt,
    made: Pick<RetryWork, 'head' | 'model' | 'alone'> & { startedMs: number; call: Promise<unknown> },
  ): Promise<BlockedAttempt> {
    const { head, model, alone, startedMs, call } = made;
    if (alone === undefined || !begun.counted) return begun;
    const isOver = await Promise.race([call.then(() => true), untilAborted(alone).then(() => false)]);
    // This event may be why the event loop stopped.
    if (isOver || this.#deps.watch.stalledSince(startedMs)) return begun;
    const uncounted = { id: begun.id, counted: false };
    return (await this.#begin(head, uncounted, model.slot)) ? uncounted : begun;
  }

  /** Leaves an event to the version of the handler that wants it and has blocked it: that version may come back. */
  async #keepUnwanted(head: TriedHead, slot: HeldSlot): Promise<void> {
    const { onError, random } = this.#deps.context;
    const { id, type, modelName, modelId } = head.event;
    const unwanted = new Error(
      `Another version of handler ${this.#deps.caller.handler} has blocked ${type} ${id} of ${modelName} ${modelId}, which this ` +
        'version does not want: it waits, and so do later events of its model. Deploy a version that wants such events, or skip them',
    );
    if (!this.#unwantedTypes.has(type)) onError(unwanted);
    this.#unwantedTypes.add(type);
    await this.#record(head, undefined, slot, {
      ...postponed(head),
      error: errorText(unwanted),
      retryAfterMs: retryAfterMs(this.#deps.policy.retry, head.uncounted + 1, random(), unwantedMaxMs),
    });
  }

  /**
   * Ends an event whose last attempt was counted and never ended: its process is dead, or its event loop stopped. A process that
   * is only slow, or had no database for a while, gets the time of a lease to report the end.
   */
  async #giveUp(head: TriedHead, slot: HeldSlot): Promise<void> {
    const key = chanceKey(head);
    const { event, attempts, uncounted } = head;
    const thrown = new Error(`The process ended, or its event loop was blocked, during attempt ${attempts}`);
    const error = errorText(thrown);
    if (!this.#lastChances.delete(key)) {
      this.#lastChances.add(key);
      const { leaseMs } = this.#deps.context.settings;
      await this.#record(head, undefined, slot, { ...postponed(head), error, retryAfterMs: leaseMs });
      return;
    }
    this.#deps.caller.report({ event, attempt: attempts, error: thrown, retryAfterMs: undefined });
    await this.#record(head, undefined, slot, { attempts, uncounted, error, retryAfterMs: undefined });
  }

  /** Records that the attempt begins, or whether it counts, and repeats that as long as necessary. */
  async #begin(head: BlockedHead, attempt: BlockedAttempt, slot: HeldSlot): Promise<boolean> {
    const { onError, ended } = this.#deps.context;
    const backoff = new StoreBackoff(this.#deps.context);
    for (let unsure = false; !slot.isLeaving; unsure = true) {
      try {
        const begun = await this.#deps.writes.begin.add({ head, attempt });
        // The slot may have been lost while the answer was on its way.
        if (begun && slot.held && !ended.aborted) return true;
        if (begun || unsure) await this.giveBack(head, attempt);
        return false;
      } catch (error) {
        onError(error);
        await backoff.failed(slot.leaving);
      }
    }
    await this.giveBack(head, attempt);
    return false;
  }

  #failed(head: TriedHead, failure: FailedCall): FailedState {
    const { event, attempts } = head;
    const isPartial = failure.kind === 'partly-failed';
    const error = isPartial ? failure.errors.get(event.id) : failure.error;
    // A batch that waits when it fails counts whatever it throws as an outage.
    const verdict = this.#deps.policy.waitsWhenFailed && !isPartial ? 'outage' : attemptVerdict(error);
    const failed = failedState(this.#deps.policy, head, error, verdict, this.#deps.context.random());
    const { retryAfterMs: afterMs } = failed;
    const counted = verdict !== 'outage';
    const isUntried = isPartial && failure.isEnded === true;
    if (!isUntried)
      this.#deps.caller.report({ event, attempt: attempts + 1, error, counted, retryAfterMs: afterMs });
    return failed;
  }

  /** Records how an attempt has failed; returns false if the slot was lost before. */
  #record(
    head: TriedHead,
    attempt: BlockedAttempt | undefined,
    slot: HeldSlot,
    state: FailedState,
  ): Promise<boolean> {
    const { handler, token, event, doneIds } = head;
    const failure = { handler, token, event, attempt, before: head, doneIds, ...rowOf(state) };
    return this.#deps.writes.fail.add(slot, failure);
  }

  /**
   * Ends an attempt whose outcome no longer matters. It is taken back, unless the event loop stopped during it: the call may be
   * the cause, and would stop every process that takes the event over, one after the other.
   */
  async endUnrecorded(
    head: BlockedHead,
    { attempt, startedMs }: Pick<DoneAttempt, 'attempt' | 'startedMs'>,
  ): Promise<void> {
    const { event } = head;
    if (attempt === undefined || event === undefined) return;
    if (!this.#deps.watch.stalledSince(startedMs)) return this.giveBack(head, attempt);
    const number = head.attempts + 1;
    // The process that makes it a dead letter reports the last attempt.
    if (attempt.counted && number >= this.#deps.policy.retry.attemptsMax) return;
    const { leaseMs } = this.#deps.context.settings;
    const message = `The event loop was blocked during attempt ${number}, so that the lease of ${leaseMs} ms was not renewed in time`;
    const { counted } = attempt;
    this.#deps.caller.report({ event, attempt: number, error: new Error(message), counted, retryAfterMs: 0 });
  }

  /** Takes the attempt back; an outage of the database delays that. */
  async giveBack(model: BlockedModel, attempt: BlockedAttempt | undefined): Promise<void> {
    if (attempt === undefined) return;
    const { context, blocked } = this.#deps;
    const { ended } = context;
    const backoff = new StoreBackoff(context);
    for (let tries = 0; !ended.aborted || tries < lastTriesMax; tries += ended.aborted ? 1 : 0)
      if (await backoff.tried(() => blocked.giveBack(model, attempt))) return;
  }
}

type TriedHead = RetryWork['head'];

interface TrialOutcome {
  readonly outcome: HandlerOutcome;
  /** The first event that is not done, or the head. */
  readonly at: TriedHead;
  /** Everything before this is done. */
  readonly position: ModelPosition;
  readonly count: number;
}

/** The counts of a head after a call that does not count. */
function postponed({ attempts, uncounted }: AttemptCounts): AttemptCounts {
  return { attempts, uncounted: uncounted + 1 };
}

function atEvent(head: TriedHead, event: DeliverableEvent = head.event): TriedHead {
  return { ...head, event, position: event };
}

/** What has become of events that were tried together, and of which some have failed: the first one of these is the head now. */
function partOf(
  outcome: Extract<HandlerOutcome, { readonly kind: 'partly-failed' }>,
  { head, part, count }: { head: TriedHead; part: readonly DeliverableEvent[]; count: number },
): TrialOutcome {
  const index = part.findIndex(({ id }) => outcome.errors.has(id));
  const doneIds = part.slice(index).flatMap(({ id }) => (outcome.errors.has(id) ? [] : [id]));
  const at = count + index === 0 ? head : atEvent(head, part[index]);
  return {
    outcome,
    at: { ...at, doneIds: [...head.doneIds, ...doneIds] },
    position: at.position,
    count: count + index,
  };
}

function chanceKey({ event, token }: TriedHead): string {
  return `${event.id} ${token}`;
}
