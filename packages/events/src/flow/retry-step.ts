import type { ParkedEvents, ParkedHead, ParkedOutcome } from '@framework/core';
import { attemptVerdict } from '../call/attempt-verdict.js';
import { errorText } from '../call/error-text.js';
import type { HandlerCaller } from '../call/handler-caller.js';
import { outageRetryAfterMs, retryAfterMs } from '../handler/handler-retry.js';
import type { HeldSlot } from '../lease/held-slot.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';
import type { FlowPolicy } from './flow-policy.js';
import type { RetryWork } from './flow-work.js';

/** How often a count is given back while delivery ends, and nobody will be there to do it later. */
const lastTriesMax = 3;

/**
 * Tries parked events again. Every attempt is counted before it is made, because it may end the process; what turns out not
 * to have failed by itself is taken back.
 */
export class RetryStep {
  readonly #context: WorkerContext;
  readonly #parked: Pick<ParkedEvents, 'beginAttempt' | 'endAttempt' | 'giveBackAttempt'>;
  readonly #policy: FlowPolicy;
  readonly #caller: HandlerCaller;
  readonly #onLost: (tokens: readonly string[]) => void;
  readonly #wants: (eventType: string) => boolean;
  /** Events without attempts left of which somebody who lives may yet take one back. */
  readonly #lastChances = new Set<string>();

  constructor(options: {
    readonly context: WorkerContext;
    readonly parked: Pick<ParkedEvents, 'beginAttempt' | 'endAttempt' | 'giveBackAttempt'>;
    readonly policy: FlowPolicy;
    readonly caller: HandlerCaller;
    readonly onLost: (tokens: readonly string[]) => void;
    /** Whether the handler wants events of a type. */
    readonly wants: (eventType: string) => boolean;
  }) {
    this.#context = options.context;
    this.#parked = options.parked;
    this.#policy = options.policy;
    this.#caller = options.caller;
    this.#onLost = options.onLost;
    this.#wants = options.wants;
  }

  /** Makes one attempt and records how it ended. */
  async run({ head, slot }: RetryWork): Promise<void> {
    if (!slot.held || this.#context.ended.aborted) return;
    // Parked for a version of the handler that wanted it; in the log it would be passed over.
    if (!this.#wants(head.event.type)) return this.#record(head, undefined, slot, { kind: 'done' });
    if (head.attempts >= this.#policy.retry.attemptsMax) return this.#giveUp(head, slot);
    const attemptId = crypto.randomUUID();
    this.#lastChances.delete(chanceKey(head));
    if (!(await this.#begin(head, attemptId, slot))) return;
    const outcome = await this.#caller.call([head.event], head.attempts + 1, slot);
    if (outcome.kind === 'dropped') return this.#giveBack(head, attemptId);
    const ended: ParkedOutcome =
      outcome.kind === 'done' ? { kind: 'done' } : this.#failed(head, outcome.error);
    await this.#record(head, attemptId, slot, ended);
    if (!slot.held || this.#context.ended.aborted) await this.#giveBackUnrecorded(head, attemptId, ended);
  }

  /**
   * Ends an event whose last attempt was counted and never ended: its process is gone. One that is only slow, or had no
   * database for a while, has a lease's time to say so.
   */
  async #giveUp(head: ParkedHead, slot: HeldSlot): Promise<void> {
    const key = chanceKey(head);
    const thrown = new Error(`The process ended during attempt ${head.attempts}`);
    const error = errorText(thrown);
    if (!this.#lastChances.delete(key)) {
      this.#lastChances.add(key);
      const { leaseMs } = this.#context.settings;
      return this.#record(head, undefined, slot, { kind: 'postponed', error, retryAfterMs: leaseMs });
    }
    this.#tell(head, head.attempts, thrown, undefined);
    return this.#record(head, undefined, slot, { kind: 'dead', error });
  }

  /** Counts the attempt, however often that takes: when only the answer was lost, it is counted once all the same. */
  async #begin(head: ParkedHead, attemptId: string, slot: HeldSlot): Promise<boolean> {
    const { onError, ended, stopping } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (let unsure = false; slot.held && !stopping.aborted; unsure = true) {
      try {
        const begun = await this.#parked.beginAttempt(head, attemptId);
        // The slot may have been lost while the answer was on its way.
        if (begun && slot.held && !ended.aborted) return true;
        if (begun || unsure) await this.#giveBack(head, attemptId);
        return false;
      } catch (error) {
        onError(error);
        await backoff.failed(AbortSignal.any([slot.lost, stopping]));
      }
    }
    await this.#giveBack(head, attemptId);
    return false;
  }

  #failed(head: ParkedHead, thrown: unknown): ParkedOutcome {
    const { retry } = this.#policy;
    const { attempts, uncounted } = head;
    const error = errorText(thrown);
    const verdict = attemptVerdict(thrown);
    if (verdict === 'final' || (verdict === 'counts' && attempts + 1 >= retry.attemptsMax)) {
      this.#tell(head, attempts + 1, thrown, undefined);
      return { kind: 'dead', error };
    }
    const random = this.#context.random();
    const afterMs =
      verdict === 'counts'
        ? retryAfterMs(retry, attempts + 1, random)
        : outageRetryAfterMs(retry, uncounted + 1, random);
    this.#tell(head, attempts + 1, thrown, afterMs, verdict === 'counts');
    return { kind: verdict === 'counts' ? 'retry' : 'postponed', error, retryAfterMs: afterMs };
  }

  #tell(
    { event }: ParkedHead,
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

  async #record(
    head: ParkedHead,
    attemptId: string | undefined,
    slot: HeldSlot,
    outcome: ParkedOutcome,
  ): Promise<void> {
    const { ended, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (slot.held && !ended.aborted) {
      try {
        if (!(await this.#parked.endAttempt(head, attemptId, outcome))) this.#onLost([slot.token]);
        return;
      } catch (error) {
        onError(error);
        await backoff.failed(AbortSignal.any([slot.lost, ended]));
      }
    }
  }

  /** An outcome that the lease did not live to see recorded: what failed by itself stays counted. */
  async #giveBackUnrecorded(head: ParkedHead, attemptId: string, { kind }: ParkedOutcome): Promise<void> {
    if (kind === 'done' || kind === 'postponed') await this.#giveBack(head, attemptId);
  }

  /** Takes the count of the attempt back; an outage of the database delays that. */
  async #giveBack(head: ParkedHead, attemptId: string): Promise<void> {
    const { ended, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (let tries = 0; !ended.aborted || tries < lastTriesMax; tries += ended.aborted ? 1 : 0) {
      try {
        return await this.#parked.giveBackAttempt(head, attemptId);
      } catch (error) {
        onError(error);
        await backoff.failed();
      }
    }
  }
}

function chanceKey({ event, token }: ParkedHead): string {
  return `${event.id} ${token}`;
}
