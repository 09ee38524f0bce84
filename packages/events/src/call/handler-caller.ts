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
  actionNameOf,
} from '@framework/core/adapter';

import type { DatabaseHandler } from '../handler/event-handler-registry.js';
import type { HandlerContext, HandlerExecution } from '../handler/event-handler.js';
import type { EnvelopeFactory } from '../handler/row-envelope.js';
import { type AbandonedCalls, CallDeadlines } from './call-deadlines.js';

/**
 * How a call ended; `dropped`: its slot was lost or delivery ended, so that its outcome is nobody's business here; `held-back`:
 * it was not made, because none may be made now.
 */
export type CallOutcome =
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'dropped' }
  | { readonly kind: 'held-back' };

const done: CallOutcome = { kind: 'done' };
const dropped: CallOutcome = { kind: 'dropped' };
const heldBack: CallOutcome = { kind: 'held-back' };

/** For what a call is made: its outcome counts while this process holds the slot. */
interface CalledSlot {
  /** False for good once it is lost. */
  readonly held: boolean;
}

interface RunningCall {
  readonly slot: CalledSlot;
  readonly context: CallContext;
  /** Ends the waiting for the call, which itself may run on. */
  readonly onOutcome: (outcome: CallOutcome) => void;
}

/** Calls one handler with events, and never waits longer than the handler may take. */
export class HandlerCaller {
  readonly #handler: DatabaseHandler;
  readonly #executor: Pick<ActionExecutor, 'execute'>;
  readonly #envelopes: EnvelopeFactory;
  readonly #abandoned: AbandonedCalls;
  readonly #log: Pick<DeliveryLog, 'load'>;
  readonly #mayCall: () => boolean;
  readonly #running: CallDeadlines<RunningCall>;

  constructor(options: {
    readonly handler: DatabaseHandler;
    readonly executor: Pick<ActionExecutor, 'execute'>;
    readonly envelopes: EnvelopeFactory;
    readonly timeoutMs: number;
    readonly clock: Clock;
    /** Gives what was left out of large events. */
    readonly log: Pick<DeliveryLog, 'load'>;
    /** Those of all handlers of the process. */
    readonly abandoned: AbandonedCalls;
    /** Asked right before each call of the handler. */
    readonly mayCall: () => boolean;
  }) {
    this.#handler = options.handler;
    this.#executor = options.executor;
    this.#envelopes = options.envelopes;
    this.#abandoned = options.abandoned;
    this.#log = options.log;
    this.#mayCall = options.mayCall;
    const { timeoutMs } = options;
    this.#running = new CallDeadlines(timeoutMs, options.clock, (call) => {
      const error = new HandlerTimeoutError(options.handler.name, timeoutMs);
      this.#giveUp(call, { kind: 'failed', error }, error);
    });
  }

  /** The handler's durable name. */
  get handler(): string {
    return this.#handler.name;
  }

  /** Calls the handler with the events, which belong to one slot; at least one. Never rejects. */
  call(
    events: readonly [DeliverableEvent, ...DeliverableEvent[]],
    attempt: number,
    slot: CalledSlot,
  ): Promise<CallOutcome> {
    const isLarge = events.some(({ omitted }) => omitted === true);
    return isLarge ? this.#loadAndCall(events, attempt, slot) : this.#call(events, attempt, slot);
  }

  /** Gives up the calls for a slot that was lost, or all of them. */
  drop(reason: unknown, slot?: CalledSlot): void {
    for (const call of this.#running.calls) {
      if (slot === undefined || call.slot === slot) this.#giveUp(call, dropped, reason);
    }
    if (slot === undefined) this.#running.stop();
  }

  /** Large events are in memory for no longer than their call, whose time begins when the database has given them. */
  async #loadAndCall(
    events: readonly [DeliverableEvent, ...DeliverableEvent[]],
    attempt: number,
    slot: CalledSlot,
  ): Promise<CallOutcome> {
    const large = events.filter(({ omitted }) => omitted === true);
    let loaded: readonly DeliverableEvent[];
    try {
      loaded = await this.#log.load(this.#handler.id, large);
    } catch (error) {
      return slot.held ? { kind: 'failed', error } : dropped;
    }
    // Its events may belong to another process by now.
    if (!slot.held) return dropped;
    const byId = new Map(loaded.map((event) => [event.id, event]));
    const [first = events[0], ...others] = events.map((event) => byId.get(event.id) ?? event);
    return this.#call([first, ...others], attempt, slot);
  }

  #call(
    events: readonly [DeliverableEvent, ...DeliverableEvent[]],
    attempt: number,
    slot: CalledSlot,
  ): Promise<CallOutcome> {
    return new Promise((onOutcome) => {
      const context = new CallContext(
        this.#handler.id,
        events[0],
        this.#envelopes.shardOf(events[0].modelId),
        attempt,
        this.#executor,
      );
      const call = { slot, context, onOutcome };
      this.#running.add(call);
      this.#invoke(events, attempt, context).then(
        (outcome) => this.#settle(call, outcome),
        (error: unknown) => this.#settle(call, { kind: 'failed', error }),
      );
    });
  }

  async #invoke(
    events: readonly [DeliverableEvent, ...DeliverableEvent[]],
    attempt: number,
    context: CallContext,
  ): Promise<CallOutcome> {
    // That may have changed while the call was prepared.
    if (!this.#mayCall()) return heldBack;
    const { handler, eventClasses } = this.#handler;
    const envelopeOf = (event: DeliverableEvent) =>
      this.#envelopes.envelope(event, eventClasses?.get(event.type), attempt);
    if ('handleBatch' in handler) await handler.handleBatch(events.map(envelopeOf), context);
    else await handler.handle(envelopeOf(events[0]), context);
    return done;
  }

  #settle(call: RunningCall, outcome: CallOutcome): void {
    if (this.#running.remove(call)) return call.onOutcome(outcome);
    this.#abandoned.remove(this.#handler.name);
  }

  #giveUp(call: RunningCall, outcome: CallOutcome, reason: unknown): void {
    this.#running.remove(call);
    this.#abandoned.add(this.#handler.name);
    call.context.abort(reason);
    call.onOutcome(outcome);
  }
}

/** What one call of a handler may use, until it is given up. */
export class CallContext implements HandlerContext {
  readonly attempt: number;
  readonly #handler: string;
  readonly #event: DeliverableEvent;
  readonly #shard: ShardIdentifier;
  readonly #executor: Pick<ActionExecutor, 'execute'>;
  #controller: AbortController | undefined;
  #aborted: { readonly reason: unknown } | undefined;

  /**
   * @param handler its permanent id in the database of the event
   * @param shard that of the event
   */
  constructor(
    handler: string,
    event: DeliverableEvent,
    shard: ShardIdentifier,
    attempt: number,
    executor: Pick<ActionExecutor, 'execute'>,
  ) {
    this.#handler = handler;
    this.#event = event;
    this.#shard = shard;
    this.attempt = attempt;
    this.#executor = executor;
  }

  /** Made when it is asked for: most handlers never do, and they are called very often. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#aborted !== undefined) this.#controller.abort(this.#aborted.reason);
    return this.#controller.signal;
  }

  /** Gives the call up. */
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
    const { id, headers } = this.#event;
    const parts = [this.#handler, id, actionNameOf(action), ...(key === undefined ? [] : [key])];
    const keyed: ExecutionConfiguration = {
      ...configuration,
      headers: { ...headers, 'causation-id': id, ...configuration.headers },
      idempotencyKey: parts.join('/'),
      handledEvent: { handler: this.#handler, eventId: id, shard: this.#shard },
    };
    return this.#executor.execute(principal ?? { name: this.#event.principal }, action, params, keyed);
  }
}
