import { InvariantViolationError } from '@framework/core';
import type { AttemptCounts, BlockedFailure } from '@framework/core/adapter';

import { type AttemptVerdict, askedWaitMs, attemptVerdict, errorText } from '../call/attempt-failure.js';
import type { HandlerCaller } from '../call/handler-caller.js';
import { type EngineSettings, type SettingName, settingIssue } from '../delivery-settings.js';
import type { RegisteredHandler } from '../handler/event-handler-registry.js';
import { type HandlerRetry, retryAfterMs, set } from '../handler/event-handler.js';
import type { WorkerContext } from '../worker-context.js';
import type { BlockedWrites } from './batched-writes.js';
import { type EventWork, type HeldSlot, modelKey } from '../slots/held-slot.js';

/** Events that are neither done nor blocked, and must be tried again together. */
export interface LeftEvents {
  readonly works: readonly EventWork[];
  /** How long to wait; `undefined` means as soon as calls are allowed again, because none was made. */
  readonly waitMs: number | undefined;
}

/** Handles events as they come from the log; blocks the model of an event that fails. */
export class EventStep {
  readonly #context: WorkerContext;
  readonly #handler: string;
  readonly #policy: HandlerPolicy;
  readonly #caller: HandlerCaller;
  readonly #failures: BlockedWrites['fail'];
  readonly #onBlocked: (slot: HeldSlot, left: readonly EventWork[]) => void;

  constructor(options: {
    readonly context: WorkerContext;
    readonly handler: string;
    readonly policy: HandlerPolicy;
    readonly caller: HandlerCaller;
    readonly failures: BlockedWrites['fail'];
    /** Called when models of a slot have been blocked, with the events that were kept until then. */
    readonly onBlocked: (slot: HeldSlot, left: readonly EventWork[]) => void;
  }) {
    this.#context = options.context;
    this.#handler = options.handler;
    this.#policy = options.policy;
    this.#caller = options.caller;
    this.#failures = options.failures;
    this.#onBlocked = options.onBlocked;
  }

  /** How many events of a queue are taken together at most, and with how many bytes. */
  get takeMax(): { readonly count: number; readonly bytes: number } {
    return { count: this.#policy.batchMax, bytes: this.#context.settings.batchBytesMax };
  }

  /**
   * Handles events of one queue, in order, and leaves those of blocked models in the log; those that are neither finished nor returned
   * belong to another process.
   *
   * @param attempt the number of this attempt at these events, from 1
   * @returns those that must be tried again together
   */
  async run(works: readonly EventWork[], attempt: number): Promise<LeftEvents | undefined> {
    const handled: EventWork[] = [];
    for (const work of works) {
      if (!work.slot.held) continue;
      if (isLeft(work)) leave(work);
      else handled.push(work);
    }
    const [next, ...others] = handled;
    return next && this.#handle([next, ...others], attempt);
  }

  async #handle(
    works: readonly [EventWork, ...EventWork[]],
    attempt: number,
  ): Promise<LeftEvents | undefined> {
    const [{ slot, event }, ...others] = works;
    if (this.#context.ended.aborted) return undefined;
    const outcome = await this.#caller.call([event, ...others.map((work) => work.event)], attempt, slot);
    if (outcome.kind === 'done') finish(works);
    if (outcome.kind === 'held-back') return { works, waitMs: undefined };
    if (outcome.kind === 'partly-failed') await this.#blockFailed(works, outcome.errors);
    if (outcome.kind !== 'failed') return undefined;
    if (!this.#policy.waitsWhenFailed) {
      await this.#block(works, outcome.error);
      return undefined;
    }
    const waitMs = uncountedWaitMs(this.#policy, attempt, outcome.error, this.#context.random());
    this.#tell(works[0], works.length, outcome.error, { attempts: 0, retryAfterMs: waitMs }, attempt);
    return { works, waitMs };
  }

  /** Blocks the models of all events of a call that failed as a whole. */
  async #block(works: readonly [EventWork, ...EventWork[]], error: unknown): Promise<void> {
    const failed = this.#failed(works.length, error, verdictOf(this.#policy, error));
    this.#tell(works[0], works.length, error, failed);
    await this.#blockAs(works, () => failed);
    const { slot } = works[0];
    for (const [key, own] of Map.groupBy(works, ({ event }) => modelKey(event)))
      slot.blocked.get(key)?.halve(own.map(({ event }) => event));
  }

  /** Blocks the models of the events that are known to have failed; all other events are done. */
  async #blockFailed(
    works: readonly [EventWork, ...EventWork[]],
    errors: ReadonlyMap<string, unknown>,
  ): Promise<void> {
    const models = new Set(
      works.filter(({ event }) => errors.has(event.id)).map(({ event }) => modelKey(event)),
    );
    finish(works.filter(({ event }) => !models.has(modelKey(event))));
    const failed = works.filter(({ event }) => models.has(modelKey(event)));
    await this.#blockAs(
      failed,
      (work) => {
        const error = errors.get(work.event.id);
        const state = this.#failed(1, error, attemptVerdict(error));
        this.#tell(work, 1, error, state);
        return state;
      },
      ({ event }) => !errors.has(event.id),
    );
  }

  /**
   * @param works those of each model in order
   * @param stateOf how the first event of each model that is not done has failed
   */
  async #blockAs(
    works: readonly EventWork[],
    stateOf: (work: EventWork) => FailedState,
    isDone: (work: EventWork) => boolean = () => false,
  ): Promise<void> {
    const [first] = works;
    if (first === undefined) return;
    const { slot } = first;
    const blocked = [...Map.groupBy(works, ({ event }) => modelKey(event)).values()].flatMap((own) => {
      const head = own.find((work) => !isDone(work));
      if (head === undefined) return [];
      const { event } = head;
      const doneIds = own
        .slice(own.indexOf(head))
        .filter(isDone)
        .map((work) => work.event.id);
      const recovery = slot.recoveryOf(event, 'blocking');
      recovery.interrupt();
      const state = { handler: this.#handler, token: slot.token, event, attempt: undefined };
      const failure = { ...state, ...stateOf(head), doneIds: [...recovery.doneIdsFrom(event), ...doneIds] };
      return { recovery, failure };
    });
    if (!(await this.#failures.add(slot, ...blocked.map(({ failure }) => failure))) || !slot.held) return;
    const kept = blocked.flatMap(({ recovery, failure }) => recovery.wait(failure.event, failure.doneIds));
    for (const work of works) leave(work);
    this.#onBlocked(slot, kept);
  }

  /**
   * How the events of a failed call are blocked. If there are several, it is not known yet which one caused the failure: each is tried
   * alone before one of them uses an attempt.
   */
  #failed(eventCount: number, thrown: unknown, verdict: AttemptVerdict): FailedState {
    const { random } = this.#context;
    const failed = failedState(this.#policy, { attempts: 0, uncounted: 0 }, thrown, verdict, random());
    if (verdict === 'outage' || eventCount === 1) return failed;
    const { error, uncounted } = failed;
    const afterMs = retryAfterMs(this.#policy.retry, 1, random());
    return { attempts: 0, uncounted, error, dead: false, retryAfterMs: afterMs };
  }

  #tell(
    { event }: EventWork,
    eventCount: number,
    error: unknown,
    { attempts, retryAfterMs: afterMs }: Pick<FailedState, 'attempts' | 'retryAfterMs'>,
    attempt = 1,
  ): void {
    this.#context.onAttemptFailed({
      handler: this.#caller.handler,
      event,
      eventCount,
      attempt,
      error,
      counted: attempts > 0,
      willRetry: afterMs !== undefined,
      retryAfterMs: afterMs,
    });
  }
}

/** How an event has failed, as its row says it. */
export type FailedState = Pick<BlockedFailure, 'attempts' | 'uncounted' | 'error' | 'retryAfterMs' | 'dead'>;

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
    return { attempts, uncounted: uncounted + 1, error, dead: false, retryAfterMs: afterMs };
  }
  const made = attempts + 1;
  const dead = verdict === 'final' || made >= retry.attemptsMax;
  const afterMs = dead ? undefined : retryAfterMs(retry, made, random);
  return { attempts: made, uncounted, error, dead, retryAfterMs: afterMs };
}

/** Whether an event stays in the log, because its model is blocked. */
export function isLeft(work: EventWork): boolean {
  return work.slot.blocked.get(modelKey(work.event))?.admits(work) === false;
}

function leave(work: EventWork): void {
  if (work.batch === undefined) work.slot.blocked.get(modelKey(work.event))?.leave(work.event);
  work.onFinished();
}

/** Reports that events are done, or left to their blocked models. */
export function finish(works: Iterable<EventWork>): void {
  for (const { onFinished } of works) onFinished();
}

/** How events are delivered to one handler: its own options, otherwise the settings. */
export interface HandlerPolicy {
  /** The `event_type`s that it wants; `undefined` when it wants every event. */
  readonly eventTypes: ReadonlySet<string> | undefined;
  /** Whether it receives several events of a slot at a time. */
  readonly batches: boolean;
  /** 1 unless it receives batches. */
  readonly batchMax: number;
  readonly waitsWhenFailed: boolean;
  readonly concurrency: number;
  readonly timeoutMs: number;
  readonly retry: HandlerRetry;
  /** The longest wait after a call that did not count, unless `retry.backoffMaxMs` is less. */
  readonly outageBackoffMaxMs: number;
}

/**
 * Applies a handler's options to the settings.
 *
 * @throws InvariantViolationError `invariant-violation` when it declares a limit that is not a whole number within its range
 */
export function handlerPolicy(
  { handler, options, eventClasses }: RegisteredHandler,
  settings: EngineSettings,
): HandlerPolicy {
  const { concurrency = 1, timeoutMs = 1, batchMax = 1, retry = {} } = options;
  for (const [limit, value] of Object.entries({ concurrency, timeoutMs, batchMax, ...set(retry) })) {
    const fault = settingIssue(limit as SettingName, value);
    if (fault === undefined) continue;
    throw new InvariantViolationError(`Handler ${options.name} declares ${limit} ${value}: it ${fault}`);
  }
  const batches = 'handleBatch' in handler;
  return {
    eventTypes: eventClasses && new Set(eventClasses.keys()),
    batches,
    batchMax: batches ? (options.batchMax ?? settings.batchMax) : 1,
    waitsWhenFailed: batches && options.whenBatchFails === 'wait',
    concurrency: options.concurrency ?? settings.concurrency,
    timeoutMs: options.timeoutMs ?? settings.timeoutMs,
    retry: { ...settings.retry, ...set(options.retry ?? {}) },
    outageBackoffMaxMs: settings.outageBackoffMaxMs,
  };
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

/** Whether a handler wants the events of an `event_type`. */
export function wantsEvent({ eventTypes }: HandlerPolicy, type: string): boolean {
  return eventTypes?.has(type) ?? true;
}

/**
 * What a failed call of the handler means for its events: with `whenBatchFails: 'wait'`, whatever it threw counts as an outage.
 */
export function verdictOf({ waitsWhenFailed }: HandlerPolicy, thrown: unknown): AttemptVerdict {
  return waitsWhenFailed ? 'outage' : attemptVerdict(thrown);
}
