import type {
  ActionClass,
  EventClass,
  ExecutionConfiguration,
  ModelEvent,
  Principal,
  ShardIdentifier,
} from '@framework/core';
import type { StartFrom } from '@framework/core/adapter';

/** What a handler may receive: typed events of the classes that it names, or every event, undecoded. */
export type AnyHandledEvent = ModelEvent<unknown> | undefined;

/** Which events a handler wants: one class, several, or with `undefined` as its type argument `'all'`. */
export type EventSelection<E extends AnyHandledEvent> = [E] extends [ModelEvent<unknown>]
  ? EventClass<E> | readonly EventClass<E>[]
  : 'all';

/**
 * Reacts to committed events, one at a time: at least once each, those of one model in order.
 *
 * One instance serves all events at once, so it holds no state of any of them. What it throws is a failed attempt.
 *
 * ```ts
 * @FrameworkEventHandler({ name: 'notify-recipient-on-deposit' })
 * class NotifyRecipientOnDeposit implements EventHandler<WalletMoneyDepositedEvent> {
 *   readonly event = WalletMoneyDepositedEvent;
 *   async handle(envelope: EventEnvelope<WalletMoneyDepositedEvent>, context: HandlerContext): Promise<void> { … }
 * }
 * ```
 */
export interface EventHandler<E extends AnyHandledEvent> {
  /** The classes of the events that it wants. */
  readonly event: EventSelection<E>;
  handle(envelope: EventEnvelope<E>, context: HandlerContext): Promise<void>;
}

/**
 * Reacts to committed events, several of one slot at a time, for bulk work such as indexing or publishing.
 *
 * The envelopes are in the order of the log. A batch succeeds or fails as a whole; see `whenBatchFails`.
 */
export interface BatchEventHandler<E extends AnyHandledEvent> {
  /** The classes of the events that it wants. */
  readonly event: EventSelection<E>;
  handleBatch(envelopes: readonly EventEnvelope<E>[], context: HandlerContext): Promise<void>;
}

/** Any handler, where its types do not matter. */
export type AnyEventHandler = {
  readonly event: EventClass | readonly EventClass[] | 'all';
} & (
  | { handle(envelope: EventEnvelope<never>, context: HandlerContext): Promise<void> }
  | { handleBatch(envelopes: readonly EventEnvelope<never>[], context: HandlerContext): Promise<void> }
);

/**
 * An event as a handler receives it: read from the log, the same whenever it is delivered, except for `attempt`.
 *
 * Its fields are read when a handler looks at them; a copy by spread has none of them.
 */
export interface EventEnvelope<E extends AnyHandledEvent> {
  /**
   * The event, decoded by the schema of its class when it is first read; `undefined` for a handler of all events.
   *
   * @throws UnstorableValueError `unstorable-value` when the payload does not fit the schema
   */
  readonly event: E;
  /** The same wherever and however often the event is delivered. */
  readonly eventId: string;
  /** The durable name of the event's class. */
  readonly eventType: string;
  /** The event's own fields, as the JSON values of the log. */
  readonly payload: unknown;
  /** The shard that the model's id carries; where it carries none, the first one of the event's database. */
  readonly shard: ShardIdentifier;
  /** Of the service that wrote it: names with dots between. */
  readonly namespace: string;
  readonly modelId: string;
  readonly modelName: string;
  /** The version that the change produced. */
  readonly modelVersion: number;
  /** The event's place among those of its action. */
  readonly ordinal: number;
  readonly actionId: string;
  readonly actionName: string;
  /** What was asked of the action, as the JSON values of the log. */
  readonly actionParams: unknown;
  /** Who asked for the action. */
  readonly principal: string;
  /** Trace context and the caller's headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** When the action began, by the clock of its process. */
  readonly startedDate: Date;
  readonly createdDate: Date;
  /** Which attempt this is, from 1. */
  readonly attempt: number;
}

/** The class of a handler, as a value. */
export type EventHandlerClass = abstract new (...args: never[]) => AnyEventHandler;

const declared = new Map<unknown, EventHandlerOptions>();

/**
 * Marks a handler for discovery, and declares its durable name and how it is delivered to.
 *
 * Works as a standard decorator, as a legacy one, and as a call: `FrameworkEventHandler({ name })(NotifyHandler)`.
 */
export function FrameworkEventHandler(options: EventHandlerOptions): (handler: EventHandlerClass) => void {
  return (handler) => {
    declared.set(handler, options);
  };
}

/** What a class declared of itself, or `undefined` when it is not marked. */
export function declaredHandlerOptions(handler: unknown): EventHandlerOptions | undefined {
  return declared.get(handler);
}

/** Every class that was marked and imported so far. */
export function discoveredHandlers(): readonly EventHandlerClass[] {
  return [...declared.keys()] as EventHandlerClass[];
}

/** What a handler declares of itself; what it leaves out, the settings of the delivery say. */
export interface EventHandlerOptions {
  /** Durable and unique: cursors, blocked events and idempotency keys are kept under it. At most 100 characters. */
  readonly name: string;
  /** Names that the handler had before: it takes over where they stand. Default: none. */
  readonly aliases?: readonly string[];
  /** Where the handler starts when it is new; a time is in the years 1 to 9999. Default `'now'`. */
  readonly startFrom?: StartFrom;
  /** How failed attempts are repeated. Default: 10 attempts, backoff with full jitter from 500 ms to 5 min. */
  readonly retry?: Partial<HandlerRetry>;
  /** How long one call may take. Default 30,000. */
  readonly timeoutMs?: number;
  /** How many models (for a batch handler: slots) are handled side by side, per database. Default 16. */
  readonly concurrency?: number;
  /** For a batch handler: how many events it receives at most. Default 1,000. */
  readonly batchMax?: number;
  /**
   * For a batch handler: what becomes of a batch that fails.
   *
   * `'block'` (default): its events are blocked, and tried one by one. `'wait'`: the same events are tried again with
   * the backoff of outages, for as long as it takes, and their slot waits; for what is down as a whole, such as a broker.
   */
  readonly whenBatchFails?: 'block' | 'wait';
}

/** How failed attempts of a handler are repeated: exponential backoff with full jitter. */
export interface HandlerRetry {
  /** How often an event is tried before it is a dead letter, the first time included. Default 10. */
  readonly attemptsMax: number;
  /** The longest wait before the second attempt; it doubles with each one. Default 500. */
  readonly backoffBaseMs: number;
  /** The longest wait before any attempt. Default 300,000. */
  readonly backoffMaxMs: number;
}

/**
 * How long to wait after a failed attempt.
 *
 * @param attempts how many were made, from 1
 * @param random a number from 0 to 1
 * @see https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 */
export function retryAfterMs(retry: HandlerRetry, attempts: number, random: number): number {
  return random * Math.min(retry.backoffMaxMs, retry.backoffBaseMs * 2 ** (attempts - 1));
}

/** How calls of a handler are repeated, also those that were no attempt. */
export interface OutageRetry extends HandlerRetry {
  /** The longest wait after a call that was no attempt, where `backoffMaxMs` is not less. */
  readonly outageBackoffMaxMs: number;
}

/**
 * How long to wait after a call that was no attempt: attempts that failed before do not lengthen it.
 *
 * @param calls how many such calls were made, from 1
 * @param random a number from 0 to 1
 */
export function outageRetryAfterMs(retry: OutageRetry, calls: number, random: number): number {
  const backoffMaxMs = Math.min(retry.backoffMaxMs, retry.outageBackoffMaxMs);
  return retryAfterMs({ ...retry, backoffMaxMs }, calls, random);
}

/**
 * How one execution by a handler differs from the executor's defaults. It has a key, and so it cannot go across shards: each step
 * of a saga is an action on one.
 */
export interface HandlerExecution extends Omit<
  ExecutionConfiguration,
  'idempotencyKey' | 'handledEvent' | 'allowCrossShard'
> {
  /** Tells several executions of one action for one event apart. Default: none, so that there is one. */
  readonly key?: string;
  /** Who asks. Default: the principal of the event. */
  readonly principal?: Principal;
}

/** What a handler may use besides the event: actions, and the signal that tells it to stop. */
export interface HandlerContext {
  /** Which attempt this is, from 1. */
  readonly attempt: number;
  /** Aborted when the handler has run for its `timeoutMs`, or when another process took its events over. */
  readonly signal: AbortSignal;
  /**
   * Executes an action at most once for this handler and event, however often the event is delivered.
   *
   * A repeat must ask for the same: make the params from the event alone. The idempotency key is made of the handler's
   * permanent id, the event's id, the action's durable name and `key`; in a batch, the id is that of the first event, and the key
   * holds for as long as the batch is cut the same: pass ids of events as `key`.
   *
   * @throws the signal's reason when it is aborted: a handler that was given up begins no more effects; what it has begun may
   * still be committed, within the deadlines of its statements and attempts
   * @throws whatever the executor throws
   */
  execute<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    configuration?: HandlerExecution,
  ): Promise<Result>;
}
