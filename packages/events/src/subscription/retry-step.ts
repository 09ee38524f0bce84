import {
  type BlockedAttempt,
  type BlockedEvents,
  type BlockedHead,
  type BlockedOutcome,
  randomUuid,
} from '@framework/core/adapter';

import { attemptVerdict, errorText } from '../call/attempt-failure.js';
import type { CallOutcome, HandlerCaller } from '../call/handler-caller.js';
import { retryAfterMs } from '../handler/event-handler.js';
import type { HeldSlot } from '../slots/held-slot.js';
import type { LoopWatch } from '../slots/lease-keeper.js';
import { type WorkerContext, storeBackoff, untilAborted } from '../worker-context.js';
import { type HandlerPolicy, uncountedWaitMs, verdictOf } from './event-step.js';
import type { RetryWork } from './keyed-queue.js';

type FailedCall = Extract<CallOutcome, { readonly kind: 'failed' | 'partly-failed' }>;

/** The longest time until an event that this version of the handler does not want is looked at again. */
const unwantedMaxMs = 300_000;

/** The maximum number of tries to take an attempt back once delivery must end; before that, there is no limit. */
const lastTriesMax = 3;

/**
 * Retries blocked events. Every attempt is recorded before it is made, because it may end the process, or stop its event loop. An
 * attempt that is made alone is counted beforehand, because only its event can be to blame; attempts in parallel are not.
 */
export class RetryStep {
  readonly #context: WorkerContext;
  readonly #blocked: Pick<BlockedEvents, 'beginAttempt' | 'endAttempt' | 'giveBackAttempt'>;
  readonly #policy: HandlerPolicy;
  readonly #caller: HandlerCaller;
  readonly #watch: Pick<LoopWatch, 'now' | 'stoodSince'>;
  readonly #onLost: (tokens: readonly string[]) => void;
  readonly #wants: (eventType: string) => boolean;
  /** Events without attempts left, whose last attempt may yet be taken back by a process that is alive. */
  readonly #lastChances = new Set<string>();
  /** Types of blocked events that the handler does not want and that have been reported. */
  readonly #unwantedTypes = new Set<string>();

  constructor(options: {
    readonly context: WorkerContext;
    readonly blocked: Pick<BlockedEvents, 'beginAttempt' | 'endAttempt' | 'giveBackAttempt'>;
    readonly policy: HandlerPolicy;
    readonly caller: HandlerCaller;
    readonly watch: Pick<LoopWatch, 'now' | 'stoodSince'>;
    readonly onLost: (tokens: readonly string[]) => void;
    /** Whether the handler wants events of a type. */
    readonly wants: (eventType: string) => boolean;
  }) {
    this.#context = options.context;
    this.#blocked = options.blocked;
    this.#policy = options.policy;
    this.#caller = options.caller;
    this.#watch = options.watch;
    this.#onLost = options.onLost;
    this.#wants = options.wants;
  }

  /** Makes one attempt and records how it ended. */
  async run({ head, slot, alone }: RetryWork): Promise<void> {
    if (!slot.held || this.#context.ended.aborted) return;
    if (!this.#wants(head.event.type)) return this.#keepUnwanted(head, slot);
    // If no attempt is open, `attemptsMax` has been lowered since: then one more attempt is made, and the dead letter gets the
    // error of that one.
    if (head.openCount > 0 && head.attempts >= this.#policy.retry.attemptsMax)
      return this.#giveUp(head, slot);
    const begun = { id: randomUuid(), counted: alone?.aborted === false };
    this.#lastChances.delete(chanceKey(head));
    if (!(await this.#begin(head, begun, slot))) return;
    const startedMs = this.#watch.now();
    const call = this.#caller.call([head.event], head.attempts + 1, slot);
    const attempt = await this.#uncountBesideOthers(begun, { head, slot, alone, startedMs, call });
    const outcome = await call;
    if (outcome.kind === 'held-back') return this.#giveBack(head, attempt);
    if (outcome.kind === 'dropped') return this.#endUnrecorded(head, attempt, startedMs);
    const ended: BlockedOutcome = outcome.kind === 'done' ? { kind: 'done' } : this.#failed(head, outcome);
    const isRecorded = await this.#record(head, attempt, slot, ended);
    // The lease ended before the outcome was recorded: a failure of the event itself stays counted, and was reported.
    if (!isRecorded && (ended.kind === 'done' || ended.kind === 'postponed')) {
      await this.#endUnrecorded(head, attempt, startedMs);
    }
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
    const uncounted = { id: randomUuid(), counted: false };
    return (await this.#begin(head, uncounted, slot, begun)) ? uncounted : begun;
  }

  /** Leaves an event to the version of the handler that wants it and has blocked it: that version may come back. */
  async #keepUnwanted(head: BlockedHead, slot: HeldSlot): Promise<void> {
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
    const outcome = { kind: 'postponed', error: errorText(unwanted), retryAfterMs: afterMs } as const;
    await this.#record(head, undefined, slot, outcome);
  }

  /**
   * Ends an event whose last attempt was counted and never ended: its process is dead, or its event loop stopped. A process that
   * is only slow, or had no database for a while, gets the time of a lease to report the end.
   */
  async #giveUp(head: BlockedHead, slot: HeldSlot): Promise<void> {
    const key = chanceKey(head);
    const thrown = new Error(
      `The process ended, or its event loop was blocked, during attempt ${head.attempts}`,
    );
    const error = errorText(thrown);
    if (!this.#lastChances.delete(key)) {
      this.#lastChances.add(key);
      const { leaseMs } = this.#context.settings;
      await this.#record(head, undefined, slot, { kind: 'postponed', error, retryAfterMs: leaseMs });
      return;
    }
    this.#tell(head, head.attempts, thrown, undefined);
    await this.#record(head, undefined, slot, { kind: 'dead', error });
  }

  /**
   * Records that the attempt begins, and repeats that as long as necessary; if only the answer was lost, it is still counted
   * once.
   */
  async #begin(
    head: BlockedHead,
    attempt: BlockedAttempt,
    slot: HeldSlot,
    before?: BlockedAttempt,
  ): Promise<boolean> {
    const { onError, ended, stopping } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (let unsure = false; slot.held && !stopping.aborted; unsure = true) {
      try {
        const begun = await this.#blocked.beginAttempt(head, attempt, before);
        // The slot may have been lost while the answer was on its way.
        if (begun && slot.held && !ended.aborted) return true;
        if (begun || unsure) await this.#giveBack(head, attempt);
        return false;
      } catch (error) {
        onError(error);
        await backoff.failed(AbortSignal.any([slot.lost, stopping]));
      }
    }
    await this.#giveBack(head, attempt);
    return false;
  }

  #failed(head: BlockedHead, failure: FailedCall): BlockedOutcome {
    const { retry } = this.#policy;
    const { attempts, uncounted } = head;
    const isPartial = failure.kind === 'partly-failed';
    const thrown = isPartial ? failure.errors.get(head.event.id) : failure.error;
    const error = errorText(thrown);
    const verdict = isPartial ? attemptVerdict(thrown) : verdictOf(this.#policy, thrown);
    if (verdict === 'final' || (verdict === 'counts' && attempts + 1 >= retry.attemptsMax)) {
      this.#tell(head, attempts + 1, thrown, undefined);
      return { kind: 'dead', error };
    }
    const random = this.#context.random();
    const afterMs =
      verdict === 'counts'
        ? retryAfterMs(retry, attempts + 1, random)
        : uncountedWaitMs(this.#policy, uncounted + 1, thrown, random);
    this.#tell(head, attempts + 1, thrown, afterMs, verdict === 'counts');
    return { kind: verdict === 'counts' ? 'retry' : 'postponed', error, retryAfterMs: afterMs };
  }

  #tell(
    { event }: BlockedHead,
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

  /** Records how an attempt ended; returns false if that may not have been written. */
  async #record(
    head: BlockedHead,
    attempt: BlockedAttempt | undefined,
    slot: HeldSlot,
    outcome: BlockedOutcome,
  ): Promise<boolean> {
    const { ended, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (slot.held && !ended.aborted) {
      try {
        const isRecorded = await this.#blocked.endAttempt(head, attempt, outcome);
        if (!isRecorded) this.#onLost([slot.token]);
        return isRecorded;
      } catch (error) {
        onError(error);
        await backoff.failed(AbortSignal.any([slot.lost, ended]));
      }
    }
    return false;
  }

  /**
   * Ends an attempt whose outcome no longer matters. It is taken back, unless the event loop stopped during it: the call may be
   * the cause, and would stop every process that takes the event over, one after the other.
   */
  async #endUnrecorded(head: BlockedHead, attempt: BlockedAttempt, startedMs: number): Promise<void> {
    if (!this.#watch.stoodSince(startedMs)) return this.#giveBack(head, attempt);
    const number = head.attempts + 1;
    // The last one is reported by the process that ends the event.
    if (attempt.counted && number >= this.#policy.retry.attemptsMax) return;
    const { leaseMs } = this.#context.settings;
    const message = `The event loop was blocked during attempt ${number}, so that the lease of ${leaseMs} ms was not renewed in time`;
    this.#tell(head, number, new Error(message), 0, attempt.counted);
  }

  /** Takes the attempt back; an outage of the database delays that. */
  async #giveBack(head: BlockedHead, attempt: BlockedAttempt): Promise<void> {
    const { ended, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (let tries = 0; !ended.aborted || tries < lastTriesMax; tries += ended.aborted ? 1 : 0) {
      try {
        return await this.#blocked.giveBackAttempt(head, attempt);
      } catch (error) {
        onError(error);
        await backoff.failed();
      }
    }
  }
}

function chanceKey({ event, token }: BlockedHead): string {
  return `${event.id} ${token}`;
}
