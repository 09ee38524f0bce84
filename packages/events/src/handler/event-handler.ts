import type { EventClass, ModelEvent } from '@framework/core';
import type { EventEnvelope } from './event-envelope.js';
import type { HandlerContext } from './handler-context.js';

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
