import type {
  ActionClass,
  EventClass,
  ExecutionConfiguration,
  ModelEvent,
  Principal,
  ShardIdentifier,
} from '@framework/core';
import type { EventSource, StartFrom } from '@framework/core/adapter';

/** What a handler may receive: typed events of the classes that it lists, or every event, undecoded. */
export type AnyHandledEvent = ModelEvent<unknown> | undefined;

/** Which events a handler wants: one class or several classes; or, if the handler's type argument is `undefined`, `'all'`. */
export type EventSelection<E extends AnyHandledEvent> = [E] extends [ModelEvent<unknown>]
  ? EventClass<E> | readonly EventClass<E>[]
  : 'all';

/**
 * Reacts to committed events, one per call: to every event at least once, and to the events of one model in order.
 *
 * One instance handles many events at the same time, so its fields must not hold state of a single one. If a call throws, the
 * attempt has failed.
 *
 * ```ts
 * class NotifyRecipientOnDeposit implements EventHandler<WalletMoneyDepositedEvent> {
 *   static readonly handlerName = 'notify-recipient-on-deposit';
 *   static readonly options: EventHandlerOptions = { startFrom: 'beginning' };
 *   readonly event = WalletMoneyDepositedEvent;
 *
 *   async handle(envelope: EventEnvelope<WalletMoneyDepositedEvent>, context: HandlerContext): Promise<void> { … }
 * }
 * ```
 */
export interface EventHandler<E extends AnyHandledEvent> {
  /** The classes of the events that it wants, or `'all'`. */
  readonly event: EventSelection<E>;
  /**
   * Handles one event. If it throws, the attempt has failed: the option `retry` says how many attempts there are, and how long
   * the waits between them may be. It should end soon after `context.signal` is aborted.
   */
  handle(envelope: EventEnvelope<E>, context: HandlerContext): Promise<void>;
}

/**
 * Reacts to several committed events of one slot at a time, for bulk work such as indexing or publishing.
 *
 * The envelopes are in the order of the log. A batch succeeds or fails as a whole (see `whenBatchFails`), unless the handler
 * throws a `PartialBatchError`, which names the events that failed.
 */
export interface BatchEventHandler<E extends AnyHandledEvent> {
  /** The classes of the events that it wants, or `'all'`. */
  readonly event: EventSelection<E>;
  /**
   * Handles one or more events of one slot. If it throws, none counts as handled, except with a `PartialBatchError`.
   *
   * It should end soon after `context.signal` is aborted. What it returns or throws then no longer counts, except events that a
   * `PartialBatchError` names as `done`, if it ends within a second: these are not delivered again.
   */
  handleBatch(envelopes: readonly EventEnvelope<E>[], context: HandlerContext): Promise<void>;
}

/** Any handler, when its types do not matter. */
export type AnyEventHandler = {
  readonly event: EventClass | readonly EventClass[] | 'all';
} & (
  | { handle(envelope: EventEnvelope<never>, context: HandlerContext): Promise<void> }
  | { handleBatch(envelopes: readonly EventEnvelope<never>[], context: HandlerContext): Promise<void> }
);

/**
 * An event as a handler receives it: read from the log, and the same at each delivery, except for `attempt`.
 *
 * Its fields, except `attempt`, are getters: a copy made by spreading lacks them.
 */
export interface EventEnvelope<E extends AnyHandledEvent> {
  /**
   * The event, decoded by the schema of its class when it is first accessed; `undefined` for a handler of all events.
   *
   * @throws UnreadableEventError `unreadable-event` when the payload does not fit the schema
   */
  readonly event: E;
  /** Identifies the event: the same wherever and however often it is delivered. */
  readonly eventId: string;
  /** The durable name of the event's class. */
  readonly eventType: string;
  /** The event's own fields, as the JSON values of the log. */
  readonly payload: unknown;
  /** The shard in the model's id; if it contains none, the first shard of the event's database. */
  readonly shard: ShardIdentifier;
  /** The namespace of the service that wrote it: names separated by dots. */
  readonly namespace: string;
  readonly modelId: string;
  readonly modelName: string;
  /** The version that the change produced. */
  readonly modelVersion: number;
  /** The event's position among the events of its action. */
  readonly ordinal: number;
  readonly actionId: string;
  readonly actionName: string;
  /** The action's params, as the JSON values of the log. */
  readonly actionParams: unknown;
  /** The party that asked for the action. */
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

/** What a handler declares in static fields with these names. Static fields need no decorator, and work everywhere. */
export interface EventHandlerDeclaration {
  /** Durable and unique: cursors, blocked events and idempotency keys are stored under it. At most 100 characters. */
  readonly handlerName: string;
  readonly options?: EventHandlerOptions;
}

/** What the decorator of a handler declares: the same as the static fields, but with the name as `name`. */
export interface NamedHandlerOptions extends EventHandlerOptions {
  /** Durable and unique: cursors, blocked events and idempotency keys are stored under it. At most 100 characters. */
  readonly name: string;
}

const declared = new Map<unknown, Partial<NamedHandlerOptions>>();

/**
 * Marks a handler for discovery by {@link EventHandlerRegistry.discover}, and can declare what the class does not declare in static
 * fields.
 *
 * Works as a standard decorator, as a legacy decorator, and as a call: `FrameworkEventHandler({ name })(NotifyHandler)`.
 *
 * @example apps/wallet-service/test/delivery/recorded-deliveries.test.ts
 *
 * ```ts
 * @FrameworkEventHandler({ name: 'watch-deposits', startFrom: 'beginning', retry: { backoffBaseMs: 10 } })
 * class WatchDeposits implements EventHandler<WalletMoneyDepositedEvent> {
 * ```
 */
export function FrameworkEventHandler(): (handler: EventHandlerClass & EventHandlerDeclaration) => void;
/** Marks a handler for discovery, and declares its name and options. What the static fields also declare must be the same there. */
export function FrameworkEventHandler(options: NamedHandlerOptions): (handler: EventHandlerClass) => void;
export function FrameworkEventHandler(
  options: Partial<NamedHandlerOptions> = {},
): (handler: EventHandlerClass) => void {
  return (handler) => {
    declared.set(handler, options);
  };
}

/** What the decorator of a class declares; empty when the class is not marked. */
export function decoratorOptions(handler: unknown): Partial<NamedHandlerOptions> {
  return declared.get(handler) ?? {};
}

/** Every class that has been marked and imported so far. */
export function discoveredHandlers(): readonly EventHandlerClass[] {
  return [...declared.keys()] as EventHandlerClass[];
}

/** Options of a handler. Those that it leaves out come from the settings of the delivery. */
export interface EventHandlerOptions {
  /** Former names of the handler, whose state it takes over. Default: none. */
  readonly aliases?: readonly string[];
  /**
   * Where the handler starts when it is new; a time must be in the years 1 to 9999. Default `'now'`, which means that it gets what
   * is committed after `await delivery.started()`. Choose `'beginning'` if it must not miss an event.
   */
  readonly startFrom?: StartFrom;
  /** How failed attempts are retried. Default: 72 attempts over at least a day, with backoff from 500 ms to 1 h. */
  readonly retry?: Partial<HandlerRetry>;
  /** How long one call may take. Default 30,000. */
  readonly timeoutMs?: number;
  /** How many models (for a batch handler: slots) are handled in parallel, per database. Default 16. */
  readonly concurrency?: number;
  /** For a batch handler: the maximum number of events in a call. Default 1,000. */
  readonly batchMax?: number;
  /**
   * For a batch handler: what happens to a batch that fails.
   *
   * `'block'` (default): its events are blocked, and retried one by one. `'wait'`: the same events are retried together as long
   * as necessary, with the backoff of outages, and their slot waits; this is for dependencies that are down as a whole, such as a
   * broker.
   */
  readonly whenBatchFails?: 'block' | 'wait';
  /**
   * What happens to the events that a process had not finished when it died, or when its event loop had stopped for so long that its
   * leases were lost.
   *
   * `'quarantine'` (default): they are blocked and tried one by one, so that an event that kills every process becomes a dead
   * letter. `'repeat'`: they are handled again like new ones; for a handler that does the same with every event, such as publishing
   * it, so that no event can be the reason.
   */
  readonly whenProcessDies?: 'quarantine' | 'repeat';
  /**
   * Where its events come from; each handler needs one of its own. Default: the log is polled, and read when this process or another
   * one has committed something.
   */
  readonly source?: EventSource;
}

/** How failed attempts of a handler are retried: exponential backoff with equal jitter, from half of each wait to all of it. */
export interface HandlerRetry {
  /** How many attempts an event gets before it is a dead letter, including the first. Default 72. */
  readonly attemptsMax: number;
  /** The longest wait before the second attempt; it grows by half with each further attempt. Default 500. */
  readonly backoffBaseMs: number;
  /** The longest wait before any attempt. Default 3,600,000. */
  readonly backoffMaxMs: number;
}

/** How many times as long as the wait before each wait is. With 1.5, an event is tried again at most half as long after an outage as that took. */
const growth = 1.5;

/**
 * How long to wait after a failed attempt, in milliseconds.
 *
 * @param attempts how many were made, from 1
 * @param random a number from 0 to 1
 * @param maxMs the longest wait, unless `backoffMaxMs` is less
 * @see https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
 */
export function retryAfterMs(
  { backoffBaseMs, backoffMaxMs }: HandlerRetry,
  attempts: number,
  random: number,
  maxMs: number = backoffMaxMs,
): number {
  return ((1 + random) / 2) * Math.min(maxMs, backoffMaxMs, backoffBaseMs * growth ** (attempts - 1));
}

/** Removes `undefined` values, so that they do not replace others. */
export function set<T extends object>(settings: T): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as {
    [Name in keyof T]?: Exclude<T[Name], undefined>;
  };
}

/**
 * How one execution by a handler differs from the executor's defaults. Such an execution has an idempotency key, so it cannot
 * span shards: each step of a saga is an action on one shard.
 */
export interface HandlerExecution extends Omit<
  ExecutionConfiguration,
  'idempotencyKey' | 'handledEvent' | 'allowCrossShard'
> {
  /** Distinguishes several executions of one action for one event. Default: none, which allows only one execution. */
  readonly key?: string;
  /** The principal of the action. Default: the principal of the event. */
  readonly principal?: Principal;
}

/** What a handler may use besides the event: actions, and the signal that tells it to stop. */
export interface HandlerContext {
  /** Which attempt this is, from 1. */
  readonly attempt: number;
  /** Aborted when the handler has run for its `timeoutMs`, or when another process has taken over its events. */
  readonly signal: AbortSignal;
  /**
   * Executes an action at most once for this handler and event, however often the event is delivered.
   *
   * A repeat must pass the same params: make them from the event alone. The idempotency key consists of the handler's permanent
   * id, the event's id, the action's durable name and `key`. For a batch, the event's id is that of the first event: tell the
   * executions of one batch apart by `key`, such as the id of the event that each is for. An event that is delivered again in a
   * batch with another first event has its action executed again.
   *
   * @throws the signal's reason when it is aborted: an abandoned handler starts no further effects; what it has started may still
   * be committed, within the deadlines of its statements and attempts
   * @throws whatever the executor throws
   */
  execute<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    configuration?: HandlerExecution,
  ): Promise<Result>;
}
