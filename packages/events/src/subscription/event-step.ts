import { InvariantViolationError } from '@framework/core';
import type { BlockedEvent } from '@framework/core/adapter';

import { type AttemptVerdict, askedWaitMs, attemptVerdict, errorText } from '../call/attempt-failure.js';
import type { HandlerCaller } from '../call/handler-caller.js';
import { type EngineSettings, type SettingName, set, settingIssue } from '../delivery-settings.js';
import type { RegisteredHandler } from '../handler/event-handler-registry.js';
import { type OutageRetry, outageRetryAfterMs, retryAfterMs } from '../handler/event-handler.js';
import type { WorkerContext } from '../worker-context.js';
import type { EventBlocker } from './blocked-events.js';
import { type BlockedModelSet, type EventWork, modelKey } from './keyed-queue.js';

/** Events that are neither done nor blocked, and must be tried again together. */
export interface LeftEvents {
  readonly works: readonly EventWork[];
  /** How long to wait; `undefined` means as soon as calls are allowed again, because none was made. */
  readonly waitMs: number | undefined;
}

/** Handles events as they come from the log; blocks an event that fails, and those that follow it. */
export class EventStep {
  readonly #context: WorkerContext;
  readonly #handler: string;
  readonly #policy: HandlerPolicy;
  readonly #caller: HandlerCaller;
  readonly #blocker: EventBlocker;
  readonly #blocked: BlockedModelSet;
  readonly #onBlocked: () => void;

  constructor(options: {
    readonly context: WorkerContext;
    readonly handler: string;
    readonly policy: HandlerPolicy;
    readonly caller: HandlerCaller;
    readonly blocker: EventBlocker;
    readonly blocked: BlockedModelSet;
    /** Called when an event that must be retried has been blocked. */
    readonly onBlocked: () => void;
  }) {
    this.#context = options.context;
    this.#handler = options.handler;
    this.#policy = options.policy;
    this.#caller = options.caller;
    this.#blocker = options.blocker;
    this.#blocked = options.blocked;
    this.#onBlocked = options.onBlocked;
  }

  /** How many events of a queue are taken together at most, from this one on, and with how many bytes. */
  takeMax(first: EventWork): { readonly count: number; readonly bytes: number } {
    const { blockMax, batchBytesMax } = this.#context.settings;
    // Blocking copies events within the database, so their size does not matter to this process.
    if (!this.#policy.batches && this.#isBlocked(first)) return { count: blockMax, bytes: Infinity };
    return { count: this.#policy.batchMax, bytes: batchBytesMax };
  }

  /**
   * Handles events of one queue, in order; those that are neither finished nor returned belong to another process.
   *
   * @param attempt the number of this attempt at these events, from 1
   * @returns those that must be tried again, and are not blocked
   */
  async run(works: readonly EventWork[], attempt: number): Promise<LeftEvents | undefined> {
    const held = works.filter(({ slot }) => slot.held);
    const [next, ...others] = this.#blocked.empty ? held : await this.#withoutBlocked(held);
    return next && this.#handle([next, ...others], attempt);
  }

  /** Blocks the events whose models are blocked, and returns the others; none when they belong to another process now. */
  async #withoutBlocked(works: readonly EventWork[]): Promise<readonly EventWork[]> {
    let left = works;
    // Further models may be blocked meanwhile.
    for (;;) {
      const behind = new Set(left.filter((work) => this.#isBlocked(work)));
      const [first] = behind;
      if (first === undefined) return left;
      const events = [...behind].map(({ event }) => ({ ...waiting, handler: this.#handler, event }));
      if (!(await this.#blocker.block(first.slot, events))) return [];
      finish(behind);
      left = left.filter((work) => !behind.has(work));
    }
  }

  async #handle(
    works: readonly [EventWork, ...EventWork[]],
    attempt: number,
  ): Promise<LeftEvents | undefined> {
    const [{ slot, event }, ...others] = works;
    if (!slot.held || this.#context.ended.aborted) return undefined;
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

  /** Blocks all events of a call that failed as a whole: the first one of each model is to be retried, the others wait for it. */
  async #block(works: readonly [EventWork, ...EventWork[]], error: unknown): Promise<void> {
    const failed = this.#failed(works.length, error, verdictOf(this.#policy, error));
    this.#tell(works[0], works.length, error, failed);
    await this.#blockAs(works, () => failed);
  }

  /** Blocks the events that are known to have failed, and later ones of their models; the others are done. */
  async #blockFailed(
    works: readonly [EventWork, ...EventWork[]],
    errors: ReadonlyMap<string, unknown>,
  ): Promise<void> {
    const models = new Set<string>();
    const isBehind = new Set(
      works.filter(({ event }) => {
        if (errors.has(event.id)) models.add(modelKey(event));
        return models.has(modelKey(event));
      }),
    );
    finish(works.filter((work) => !isBehind.has(work)));
    await this.#blockAs([...isBehind], (work) => {
      const error = errors.get(work.event.id);
      const failed = this.#failed(1, error, attemptVerdict(error));
      this.#tell(work, 1, error, failed);
      return failed;
    });
  }

  /** @param stateOf how to block the first event of each model */
  async #blockAs(works: readonly EventWork[], stateOf: (work: EventWork) => BlockedState): Promise<void> {
    const [first] = works;
    if (first === undefined) return;
    const models = new Set<string>();
    const events = works.map((work) => {
      const model = modelKey(work.event);
      const state = models.has(model) ? waiting : stateOf(work);
      models.add(model);
      return { ...state, handler: this.#handler, event: work.event };
    });
    if (!(await this.#blocker.block(first.slot, events))) return;
    for (const model of models) this.#blocked.add(first.slot.slot, model);
    finish(works);
    this.#onBlocked();
  }

  /**
   * How the events of a failed call are blocked. If there are several, it is not known yet which one caused the failure: each is tried
   * alone before one of them uses an attempt.
   */
  #failed(eventCount: number, thrown: unknown, verdict: AttemptVerdict): BlockedState {
    const { retry } = this.#policy;
    const isOutage = verdict === 'outage';
    const counts = !isOutage && eventCount === 1;
    const dead = counts && (verdict === 'final' || retry.attemptsMax === 1);
    const random = this.#context.random();
    const afterMs = isOutage
      ? uncountedWaitMs(this.#policy, 1, thrown, random)
      : retryAfterMs(retry, 1, random);
    return {
      attempts: counts ? 1 : 0,
      uncounted: isOutage ? 1 : 0,
      error: errorText(thrown),
      retryAfterMs: dead ? undefined : afterMs,
      dead,
      suspect: false,
    };
  }

  #tell(
    { event }: EventWork,
    eventCount: number,
    error: unknown,
    { attempts, retryAfterMs: afterMs }: Pick<BlockedState, 'attempts' | 'retryAfterMs'>,
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

  #isBlocked({ slot, event }: EventWork): boolean {
    return this.#blocked.has(slot.slot, modelKey(event));
  }
}

type BlockedState = Omit<BlockedEvent, 'token' | 'handler' | 'event'>;

/** The state in which an event is blocked that only waits for an earlier one of its model. */
const waiting: BlockedState = {
  attempts: 0,
  uncounted: 0,
  error: undefined,
  retryAfterMs: undefined,
  dead: false,
  suspect: false,
};

function finish(works: Iterable<EventWork>): void {
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
  readonly retry: OutageRetry;
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
    retry: {
      ...settings.retry,
      ...set(options.retry ?? {}),
      outageBackoffMaxMs: settings.outageBackoffMaxMs,
    },
  };
}

/**
 * How long to wait after a call that did not count, in milliseconds: as long as what was thrown asks for, or else the backoff of
 * outages.
 *
 * @param calls how many such calls were made, from 1
 * @param random a number from 0 to 1
 */
export function uncountedWaitMs(
  { retry }: HandlerPolicy,
  calls: number,
  thrown: unknown,
  random: number,
): number {
  return askedWaitMs(thrown, random) ?? outageRetryAfterMs(retry, calls, random);
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
