import type { ParkedEvents, ParkedHead, ParkedOutcome } from '@framework/core';
import { errorText } from '../call/error-text.js';
import type { HandlerCaller } from '../call/handler-caller.js';
import { retryAfterMs } from '../handler/handler-retry.js';
import type { HeldSlot } from '../lease/held-slot.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';
import type { FlowPolicy } from './flow-policy.js';
import type { RetryWork } from './flow-work.js';

/** Tries parked events again; every attempt is counted before it is made. */
export class RetryStep {
  readonly #context: WorkerContext;
  readonly #parked: Pick<ParkedEvents, 'beginAttempt' | 'endAttempt'>;
  readonly #policy: FlowPolicy;
  readonly #caller: HandlerCaller;
  readonly #onLost: (tokens: readonly string[]) => void;

  constructor(options: {
    readonly context: WorkerContext;
    readonly parked: Pick<ParkedEvents, 'beginAttempt' | 'endAttempt'>;
    readonly policy: FlowPolicy;
    readonly caller: HandlerCaller;
    readonly onLost: (tokens: readonly string[]) => void;
  }) {
    this.#context = options.context;
    this.#parked = options.parked;
    this.#policy = options.policy;
    this.#caller = options.caller;
    this.#onLost = options.onLost;
  }

  /** Makes one attempt and records how it ended. */
  async run({ head, slot }: RetryWork): Promise<void> {
    if (!slot.held || this.#context.ended.aborted) return;
    const { attemptsMax } = this.#policy.retry;
    if (head.attempts >= attemptsMax) {
      // Its last attempt was counted, and whoever made it did not live to say how it ended.
      const error = `The process ended during attempt ${head.attempts}`;
      return this.#record(head, slot, { kind: 'dead', error });
    }
    if (!(await this.#begin(head))) return;
    const outcome = await this.#caller.call([head.event], head.attempts + 1, slot);
    if (outcome.kind === 'dropped') return;
    return this.#record(
      head,
      slot,
      outcome.kind === 'done' ? { kind: 'done' } : this.#failed(head, outcome.error),
    );
  }

  async #begin(head: ParkedHead): Promise<boolean> {
    try {
      return await this.#parked.beginAttempt(head);
    } catch (error) {
      this.#context.onError(error);
      return false;
    }
  }

  #failed({ attempts }: ParkedHead, thrown: unknown): ParkedOutcome {
    const { retry } = this.#policy;
    const error = errorText(thrown);
    if (attempts + 1 >= retry.attemptsMax) return { kind: 'dead', error };
    const afterMs = retryAfterMs(retry, attempts + 1, this.#context.random());
    return { kind: 'retry', error, retryAfterMs: afterMs };
  }

  async #record(head: ParkedHead, slot: HeldSlot, outcome: ParkedOutcome): Promise<void> {
    const { ended, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (slot.held && !ended.aborted) {
      try {
        if (!(await this.#parked.endAttempt(head, outcome))) this.#onLost([slot.token]);
        return;
      } catch (error) {
        onError(error);
        await backoff.failed(AbortSignal.any([slot.lost, ended]));
      }
    }
  }
}
