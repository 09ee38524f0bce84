import type {
  ActionClass,
  ActionExecutor,
  Clock,
  ExecutionConfiguration,
  ShardIdentifier,
} from '@framework/core';
import {
  type DeliverableEvent,
  type DeliveryLog,
  HandlerTimeoutError,
  type Observe,
  type ObservedEvent,
  RetryLaterError,
  actionNameOf,
} from '@framework/core/adapter';

import type { DatabaseHandler } from '../handler/event-handler-registry.js';
import {
  type AttemptFailure,
  type AttemptFailureHook,
  namedAsDone,
  partialFailure,
} from './attempt-failure.js';
import type { HandlerContext, HandlerExecution } from '../handler/event-handler.js';
import type { EnvelopeFactory } from '../handler/row-envelope.js';
import { type AbandonedCalls, CallDeadlines, type TurnTime } from './call-deadlines.js';

/**
 * How a call ended. `dropped`: its slot was lost or delivery ended, so its outcome no longer matters here. `held-back`: it was
 * not made, because no call may be made now.
 */
export type HandlerOutcome =
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: unknown }
  /** Only the events with these ids failed, for these reasons; `isEnded` if the call was aborted before they were done. */
  | {
      readonly kind: 'partly-failed';
      readonly errors: ReadonlyMap<string, unknown>;
      readonly isEnded?: true;
    }
  | { readonly kind: 'dropped' }
  | { readonly kind: 'held-back' };

const done: HandlerOutcome = { kind: 'done' };
const dropped: HandlerOutcome = { kind: 'dropped' };
const heldBack: HandlerOutcome = { kind: 'held-back' };

/** What a call is made for: its outcome counts only while this process holds the slot. */
interface CalledSlot {
  /** False for ever once the slot is lost. */
  readonly held: boolean;
}

/** A call that is to be made. */
interface Call {
  readonly events: readonly DeliverableEvent[];
  readonly attempt: number;
  readonly slot: CalledSlot;
  /** Ends the wait for the call, which itself may still be running. */
  readonly onOutcome: (outcome: HandlerOutcome) => void;
}

interface RunningCall extends Pick<Call, 'slot' | 'onOutcome'> {
  readonly context: CallContext;
  /** Whether it was aborted, and has time left to name what is done: nothing else counts. */
  isEnding: boolean;
  /** Ends what an observer sees of the call, for this reason. */
  readonly onGivenUp: (reason: unknown) => void;
}

type ReportedFailure = Pick<AttemptFailure, 'event' | 'attempt' | 'error' | 'retryAfterMs'> &
  Partial<Pick<AttemptFailure, 'counted' | 'eventCount'>>;

interface HandlerCallerOptions {
  readonly handler: DatabaseHandler;
  readonly executor: Pick<ActionExecutor, 'execute'>;
  readonly envelopes: EnvelopeFactory;
  readonly timeoutMs: number;
  readonly context: {
    readonly clock: Clock;
    /** The time that all handlers of the process share in a turn of the event loop. */
    readonly turn: TurnTime;
    readonly observe: Observe;
    /** Called for every call that did not succeed; never throws. */
    readonly onAttemptFailed: AttemptFailureHook;
  };
  /** Loads what was left out of large events. */
  readonly log: Pick<DeliveryLog, 'load'>;
  readonly abandoned: AbandonedCalls;
  /** Checked immediately before each call. */
  readonly mayCall: () => boolean;
}

/** Calls one handler with events, and never waits longer than the handler's timeout. */
export class HandlerCaller {
  readonly #options: HandlerCallerOptions;
  readonly #running: CallDeadlines<RunningCall>;
  /** Calls that wait for a turn of the event loop in which there is time left. */
  readonly #waiting: Call[] = [];
  /** The slots for which no further call is made. */
  readonly #endedSlots = new WeakSet<CalledSlot>();
  /** Whether no further call is made at all. */
  #isEnded = false;

  constructor(options: HandlerCallerOptions) {
    this.#options = options;
    const { handler, timeoutMs, context } = options;
    context.turn.onNextTurn(() => this.#resume());
    this.#running = new CallDeadlines(timeoutMs, context.clock, (call) => {
      const error = new HandlerTimeoutError(handler.name, timeoutMs);
      this.#giveUp(call, call.isEnding ? dropped : { kind: 'failed', error }, error);
    });
  }

  /** The handler's durable name. */
  get handler(): string {
    return this.#options.handler.name;
  }

  /** Calls the handler with events from one slot; without any, there is nothing to do. Never rejects. */
  call(events: readonly DeliverableEvent[], attempt: number, slot: CalledSlot): Promise<HandlerOutcome> {
    return new Promise((onOutcome) => {
      const call = { events, attempt, slot, onOutcome };
      if (events.some(({ omitted }) => omitted === true)) void this.#load(call);
      else this.#enter(call);
    });
  }

  /** Reports that a call did not succeed: by default one with a single event, which counts as an attempt. */
  report({ counted = true, eventCount = 1, ...failure }: ReportedFailure): void {
    const willRetry = failure.retryAfterMs !== undefined;
    this.#options.context.onAttemptFailed({
      handler: this.handler,
      ...failure,
      eventCount,
      counted,
      willRetry,
    });
  }

  /**
   * Makes no further calls for a slot, or at all, and aborts those that are running. What batch handlers name as done still counts.
   * Whatever else a call returns or throws from then on is ignored: it may have ended only because of its signal.
   */
  end(reason: unknown, slot?: CalledSlot): void {
    if (slot === undefined) this.#isEnded = true;
    else this.#endedSlots.add(slot);
    for (const call of this.#running.calls) {
      if (slot !== undefined && call.slot !== slot) continue;
      call.isEnding = true;
      call.context.abort(reason);
    }
  }

  /** Abandons the calls for a slot that was lost, or all calls. */
  drop(reason: unknown, slot?: CalledSlot): void {
    for (const call of this.#running.calls) {
      if (slot === undefined || call.slot === slot) this.#giveUp(call, dropped, reason);
    }
    if (slot === undefined) this.#running.stop();
  }

  /** Large events are in memory only during their call, whose timeout begins when the database has returned them. */
  async #load(call: Call): Promise<void> {
    const { events, slot, onOutcome } = call;
    let loaded: readonly DeliverableEvent[];
    try {
      loaded = await this.#options.log.load(events.filter(({ omitted }) => omitted === true));
    } catch (error) {
      return onOutcome(slot.held ? { kind: 'failed', error } : dropped);
    }
    const byId = new Map(loaded.map((event) => [event.id, event]));
    this.#enter({ ...call, events: events.map((event) => byId.get(event.id) ?? event) });
  }

  /**
   * Begins a call, or leaves it to a later turn if this turn's time is spent: that was last checked before the call was prepared,
   * perhaps in another turn.
   */
  #enter(call: Call): void {
    if (this.#options.context.turn.spent) this.#waiting.push(call);
    else this.#begin(call);
  }

  #resume(): void {
    const { turn } = this.#options.context;
    while (!turn.spent) {
      const call = this.#waiting.shift();
      if (call === undefined) return;
      this.#begin(call);
    }
  }

  #begin({ events, attempt, slot, onOutcome }: Call): void {
    const [event] = events;
    if (event === undefined) return onOutcome(done);
    // All of this may have changed while the call was being prepared.
    if (!slot.held || this.#isEnded || this.#endedSlots.has(slot)) return onOutcome(dropped);
    const { handler, executor, envelopes, mayCall } = this.#options;
    if (!mayCall()) return onOutcome(heldBack);
    const shard = envelopes.shardOf(event.modelId);
    const context = new CallContext({ handler: handler.id, event, shard, attempt, executor });
    const ended = Promise.withResolvers<void>();
    const call: RunningCall = { slot, context, onOutcome, isEnding: false, onGivenUp: ended.reject };
    this.#running.add(call);
    const handling = {
      kind: 'handle',
      handler: handler.name,
      attempt,
      isBatch: 'handleBatch' in handler.handler,
      events: events.map(observedEvent),
    } as const;
    const observed = this.#options.context.observe(handling, () => {
      const invoked = this.#invoke(event, events, context);
      invoked.then(ended.resolve, ended.reject);
      invoked.then(
        () => this.#settle(call, call.isEnding ? dropped : done),
        (error: unknown) => {
          this.#settle(call, call.isEnding ? this.#endOf(error, events) : this.#failureOf(error, events));
        },
      );
      return ended.promise;
    });
    // Its caller gets it as an outcome.
    observed.catch(() => undefined);
  }

  async #invoke(
    event: DeliverableEvent,
    events: readonly DeliverableEvent[],
    context: CallContext,
  ): Promise<void> {
    const { envelopes } = this.#options;
    const { handler, eventClasses } = this.#options.handler;
    const envelopeOf = (row: DeliverableEvent) =>
      envelopes.envelope(row, eventClasses?.get(row.type), context.attempt);
    await this.#options.context.turn.measure(() =>
      'handleBatch' in handler
        ? handler.handleBatch(events.map(envelopeOf), context)
        : handler.handle(envelopeOf(event), context),
    );
  }

  #settle(call: RunningCall, outcome: HandlerOutcome): void {
    if (this.#running.remove(call)) return call.onOutcome(outcome);
    this.#options.abandoned.remove(this.#options.handler.name);
  }

  #failureOf(error: unknown, events: readonly DeliverableEvent[]): HandlerOutcome {
    const errors = partialFailure(error, events);
    return errors === undefined ? { kind: 'failed', error } : { kind: 'partly-failed', errors };
  }

  /** The outcome of an aborted call that has thrown. */
  #endOf(thrown: unknown, events: readonly DeliverableEvent[]): HandlerOutcome {
    const doneIds = namedAsDone(thrown);
    const left = events.filter(({ id }) => !doneIds.has(id));
    if (left.length === 0) return done;
    // Without a done event, there is nothing to record: the next holder of the slot reads all of them again.
    if (left.length === events.length) return dropped;
    const error = new RetryLaterError({
      afterMs: 0,
      message: 'The call was aborted before the event was done',
    });
    return { kind: 'partly-failed', errors: new Map(left.map(({ id }) => [id, error])), isEnded: true };
  }

  #giveUp(call: RunningCall, outcome: HandlerOutcome, reason: unknown): void {
    this.#running.remove(call);
    this.#options.abandoned.add(this.#options.handler.name);
    call.context.abort(reason);
    call.onGivenUp(reason);
    call.onOutcome(outcome);
  }
}

/** The fields that observers receive: no payload, and no object that the call itself uses. */
function observedEvent({
  id,
  type,
  modelName,
  modelId,
  headers,
  createdDate,
}: DeliverableEvent): ObservedEvent {
  return { id, type, modelName, modelId, headers, createdDate };
}

interface CallContextOptions {
  /** The handler's permanent id in the database of the event. */
  readonly handler: string;
  readonly event: DeliverableEvent;
  /** The shard of the event. */
  readonly shard: ShardIdentifier;
  readonly attempt: number;
  readonly executor: Pick<ActionExecutor, 'execute'>;
}

/** What one call of a handler may use, until it is abandoned. */
export class CallContext implements HandlerContext {
  readonly attempt: number;
  readonly #options: CallContextOptions;
  #controller: AbortController | undefined;
  #aborted: { readonly reason: unknown } | undefined;

  constructor(options: CallContextOptions) {
    this.attempt = options.attempt;
    this.#options = options;
  }

  /** Created on first use: most handlers never use it, and they are called very often. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#aborted !== undefined) this.#controller.abort(this.#aborted.reason);
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#aborted = { reason };
    this.#controller?.abort(reason);
  }

  async execute<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    { key, principal, ...configuration }: HandlerExecution = {},
  ): Promise<Result> {
    if (this.#aborted !== undefined) throw this.#aborted.reason;
    const { handler, event, shard, executor } = this.#options;
    const { id, headers } = event;
    const parts = [handler, id, actionNameOf(action), ...(key === undefined ? [] : [key])];
    const keyed: ExecutionConfiguration = {
      ...configuration,
      headers: { ...headers, 'causation-id': id, ...configuration.headers },
      idempotencyKey: parts.join('/'),
      handledEvent: { handler, eventId: id, shard },
    };
    return executor.execute(principal ?? { name: event.principal }, action, params, keyed);
  }
}
