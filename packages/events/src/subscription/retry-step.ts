import {
  type BlockedAttempt,
  type BlockedFailure,
  type BlockedHead,
  type BlockedModels,
  type DeliverableEvent,
  randomUuid,
} from '@framework/core/adapter';

import { attemptVerdict, errorText } from '../call/attempt-failure.js';
import type { CallOutcome, HandlerCaller } from '../call/handler-caller.js';
import { retryAfterMs } from '../handler/event-handler.js';
import type { LoopWatch } from '../slots/lease-keeper.js';
import { type WorkerContext, storeBackoff, untilAborted } from '../worker-context.js';
import type { BlockedWrites } from './batched-writes.js';
import { type HandlerPolicy, uncountedWaitMs, verdictOf, wantsEvent } from './event-step.js';
import type { HeldSlot } from '../slots/held-slot.js';

type FailedCall = Extract<CallOutcome, { readonly kind: 'failed' | 'partly-failed' }>;

/** The longest time until an event that this version of the handler does not want is looked at again. */
const unwantedMaxMs = 300_000;

/** The maximum number of tries to take an attempt back once delivery must end; before that, there is no limit. */
const lastTriesMax = 3;

/** The head of a blocked model, which is to be tried next. */
export interface RetryWork {
  readonly kind: 'retry';
  readonly head: BlockedHead & { readonly event: DeliverableEvent };
  readonly slot: HeldSlot;
  /** Aborted once other heads may be tried beside this one; `undefined` if they may be from the start. */
  readonly alone: AbortSignal | undefined;
  /** Called once when the attempt has ended; with it if the head is done. */
  readonly onEnded: (done: DoneAttempt | undefined) => void;
}

/** An attempt at the head of a blocked model, which has succeeded; that is still to be written. */
export interface DoneAttempt {
  readonly attempt: BlockedAttempt | undefined;
  readonly startedMs: number;
}

/**
 * Tries the heads of blocked models. Every attempt is recorded before it is made, because it may end the process, or stop its event
 * loop. An attempt that is made alone is counted beforehand, because only its event can be to blame; attempts in parallel are not.
 */
export class RetryStep {
  readonly #context: WorkerContext;
  readonly #blocked: Pick<BlockedModels, 'giveBack'>;
  readonly #writes: Pick<BlockedWrites, 'begin' | 'fail'>;
  readonly #policy: HandlerPolicy;
  readonly #caller: HandlerCaller;
  readonly #watch: Pick<LoopWatch, 'now' | 'stoodSince'>;
  /** Heads without attempts left, whose last attempt may yet be taken back by a process that is alive. */
  readonly #lastChances = new Set<string>();
  /** Types of failed events that the handler does not want and that have been reported. */
  readonly #unwantedTypes = new Set<string>();

  constructor(options: {
    readonly context: WorkerContext;
    readonly blocked: Pick<BlockedModels, 'giveBack'>;
    readonly writes: Pick<BlockedWrites, 'begin' | 'fail'>;
    readonly policy: HandlerPolicy;
    readonly caller: HandlerCaller;
    readonly watch: Pick<LoopWatch, 'now' | 'stoodSince'>;
  }) {
    this.#context = options.context;
    this.#blocked = options.blocked;
    this.#writes = options.writes;
    this.#policy = options.policy;
    this.#caller = options.caller;
    this.#watch = options.watch;
  }

  /** Makes one attempt, and records how it has failed; returns it if it has not. */
  async run({ head, slot, alone }: RetryWork): Promise<DoneAttempt | undefined> {
    if (!slot.held || this.#context.ended.aborted) return undefined;
    const { event } = head;
    const startedMs = this.#watch.now();
    if (!wantsEvent(this.#policy, event.type)) {
      if (!head.hasFailed) return { attempt: undefined, startedMs };
      await this.#keepUnwanted(head, slot);
      return undefined;
    }
    // If no attempt is open, `attemptsMax` has been lowered since: then one more attempt is made, and the dead letter gets the
    // error of that one.
    if (head.openCount > 0 && head.attempts >= this.#policy.retry.attemptsMax) {
      await this.#giveUp(head, slot);
      return undefined;
    }
    this.#lastChances.delete(chanceKey(head));
    const begun = { id: randomUuid(), counted: alone?.aborted === false };
    if (!(await this.#begin(head, begun, slot))) return undefined;
    const call = this.#caller.call([event], head.attempts + 1, slot);
    const made = await this.#uncountBesideOthers(begun, { head, slot, alone, startedMs, call });
    const outcome = await call;
    if (outcome.kind === 'done') return { attempt: made, startedMs };
    if (outcome.kind === 'held-back') await this.giveBack(head, made);
    else if (outcome.kind === 'dropped') await this.endUnrecorded(head, { attempt: made, startedMs });
    else {
      const failed = this.#failed(head, outcome);
      const isRecorded = await this.#record(head, made, slot, failed);
      // The lease ended before the outcome was recorded: a failure of the event itself stays counted, and was reported.
      if (!isRecorded && failed.uncounted > head.uncounted)
        await this.endUnrecorded(head, { attempt: made, startedMs });
    }
    return undefined;
  }

  /**
   * Takes the count back if the attempt stops being alone before the call is over: from then on other events may be what ends the
   * process.
   *
   * @returns the recorded attempt when the call is over
   */
  async #uncountBesideOthers(
    begun: BlockedAttempt,
    made: Pick<RetryWork, 'head' | 'slot' | 'alone'> & { startedMs: number; call: Promise<unknown> },
  ): Promise<BlockedAttempt> {
    const { head, slot, alone, startedMs, call } = made;
    if (alone === undefined || !begun.counted) return begun;
    const isOver = await Promise.race([call.then(() => true), untilAborted(alone).then(() => false)]);
    // This event may be why the event loop stopped.
    if (isOver || this.#watch.stoodSince(startedMs)) return begun;
    const uncounted = { id: begun.id, counted: false };
    return (await this.#begin(head, uncounted, slot)) ? uncounted : begun;
  }

  /** Leaves an event to the version of the handler that wants it and has blocked it: that version may come back. */
  async #keepUnwanted(head: TriedHead, slot: HeldSlot): Promise<void> {
    const { onError, random } = this.#context;
    const { id, type, modelName, modelId } = head.event;
    const unwanted = new Error(
      `Another version of handler ${this.#caller.handler} has blocked ${type} ${id} of ${modelName} ${modelId}, which this ` +
        'version does not want: it waits, and so do later events of its model. Deploy a version that wants such events, or skip them',
    );
    if (!this.#unwantedTypes.has(type)) onError(unwanted);
    this.#unwantedTypes.add(type);
    const { backoffMaxMs } = this.#policy.retry;
    const backoff = { ...this.#policy.retry, backoffMaxMs: Math.min(backoffMaxMs, unwantedMaxMs) };
    const afterMs = retryAfterMs(backoff, head.uncounted + 1, random());
    await this.#record(head, undefined, slot, {
      ...postponed(head),
      error: errorText(unwanted),
      retryAfterMs: afterMs,
    });
  }

  /**
   * Ends an event whose last attempt was counted and never ended: its process is dead, or its event loop stopped. A process that
   * is only slow, or had no database for a while, gets the time of a lease to report the end.
   */
  async #giveUp(head: TriedHead, slot: HeldSlot): Promise<void> {
    const key = chanceKey(head);
    const thrown = new Error(
      `The process ended, or its event loop was blocked, during attempt ${head.attempts}`,
    );
    const error = errorText(thrown);
    if (!this.#lastChances.delete(key)) {
      this.#lastChances.add(key);
      const { leaseMs } = this.#context.settings;
      await this.#record(head, undefined, slot, { ...postponed(head), error, retryAfterMs: leaseMs });
      return;
    }
    this.#tell(head, head.attempts, thrown, undefined);
    const { attempts, uncounted } = head;
    await this.#record(head, undefined, slot, {
      attempts,
      uncounted,
      error,
      dead: true,
      retryAfterMs: undefined,
    });
  }

  /** Records that the attempt begins, or whether it counts, and repeats that as long as necessary. */
  async #begin(head: BlockedHead, attempt: BlockedAttempt, slot: HeldSlot): Promise<boolean> {
    const { onError, ended, stopping } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (let unsure = false; slot.held && !stopping.aborted; unsure = true) {
      try {
        const begun = await this.#writes.begin.add({ head, attempt });
        // The slot may have been lost while the answer was on its way.
        if (begun && slot.held && !ended.aborted) return true;
        if (begun || unsure) await this.giveBack(head, attempt);
        return false;
      } catch (error) {
        onError(error);
        await backoff.failed(AbortSignal.any([slot.lost, stopping]));
      }
    }
    await this.giveBack(head, attempt);
    return false;
  }

  #failed(head: TriedHead, failure: FailedCall): FailedState {
    const { retry } = this.#policy;
    const { attempts, uncounted } = head;
    const isPartial = failure.kind === 'partly-failed';
    const thrown = isPartial ? failure.errors.get(head.event.id) : failure.error;
    const error = errorText(thrown);
    const verdict = isPartial ? attemptVerdict(thrown) : verdictOf(this.#policy, thrown);
    const counts = verdict === 'counts';
    const own = verdict === 'outage' ? postponed(head) : { attempts: attempts + 1, uncounted, dead: false };
    if (verdict === 'final' || (counts && attempts + 1 >= retry.attemptsMax)) {
      this.#tell(head, attempts + 1, thrown, undefined);
      return { ...own, error, dead: true, retryAfterMs: undefined };
    }
    const random = this.#context.random();
    const afterMs = counts
      ? retryAfterMs(retry, attempts + 1, random)
      : uncountedWaitMs(this.#policy, uncounted + 1, thrown, random);
    this.#tell(head, attempts + 1, thrown, afterMs, counts);
    return { ...own, error, retryAfterMs: afterMs };
  }

  #tell(
    { event }: Pick<TriedHead, 'event'>,
    attempt: number,
    error: unknown,
    afterMs: number | undefined,
    counted = true,
  ): void {
    const willRetry = afterMs !== undefined;
    const handler = this.#caller.handler;
    const told = { handler, event, eventCount: 1, attempt, error, counted, willRetry, retryAfterMs: afterMs };
    this.#context.onAttemptFailed(told);
  }

  /** Records how an attempt has failed; returns false if the slot was lost before. */
  #record(
    head: TriedHead,
    attempt: BlockedAttempt | undefined,
    slot: HeldSlot,
    state: FailedState,
  ): Promise<boolean> {
    const { handler, token, event, doneIds } = head;
    return this.#writes.fail.add(slot, { handler, token, event, attempt, before: head, doneIds, ...state });
  }

  /**
   * Ends an attempt whose outcome no longer matters. It is taken back, unless the event loop stopped during it: the call may be
   * the cause, and would stop every process that takes the event over, one after the other.
   */
  async endUnrecorded(head: BlockedHead, { attempt, startedMs }: DoneAttempt): Promise<void> {
    const { event } = head;
    if (attempt === undefined || event === undefined) return;
    if (!this.#watch.stoodSince(startedMs)) return this.giveBack(head, attempt);
    const number = head.attempts + 1;
    // The last one is reported by the process that ends the event.
    if (attempt.counted && number >= this.#policy.retry.attemptsMax) return;
    const { leaseMs } = this.#context.settings;
    const message = `The event loop was blocked during attempt ${number}, so that the lease of ${leaseMs} ms was not renewed in time`;
    this.#tell({ event }, number, new Error(message), 0, attempt.counted);
  }

  /** Takes the attempt back; an outage of the database delays that. */
  async giveBack(head: BlockedHead, attempt: BlockedAttempt): Promise<void> {
    const { ended, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (let tries = 0; !ended.aborted || tries < lastTriesMax; tries += ended.aborted ? 1 : 0) {
      try {
        return await this.#blocked.giveBack(head, attempt);
      } catch (error) {
        onError(error);
        await backoff.failed();
      }
    }
  }
}

type TriedHead = RetryWork['head'];

type FailedState = Pick<BlockedFailure, 'attempts' | 'uncounted' | 'error' | 'dead' | 'retryAfterMs'>;

/** The counts of a head after a call that does not count. */
function postponed({
  attempts,
  uncounted,
}: BlockedHead): Pick<FailedState, 'attempts' | 'uncounted' | 'dead'> {
  return { attempts, uncounted: uncounted + 1, dead: false };
}

function chanceKey({ event, token }: TriedHead): string {
  return `${event.id} ${token}`;
}
