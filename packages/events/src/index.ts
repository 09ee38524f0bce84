// In the order in which data flows: handler, registry, envelope, context, delivery, operators.
export {
  type AnyEventHandler,
  type AnyHandledEvent,
  type BatchEventHandler,
  type EventHandler,
  type EventSelection,
  type EventHandlerDeclaration,
  type EventHandlerOptions,
  type HandlerRetry,
  type EventHandlerClass,
  type NamedHandlerOptions,
  FrameworkEventHandler,
  type EventEnvelope,
  type HandlerContext,
  type HandlerExecution,
} from './handler/event-handler.js';
export { envelopeOf } from './handler/row-envelope.js';
export { EventHandlerRegistry, type RegisteredHandler } from './handler/event-handler-registry.js';
export type { RestartHook, RestartNeed } from './call/call-deadlines.js';
export { RetryLaterError } from '@framework/core/adapter';
export {
  errorText,
  type AttemptFailure,
  type AttemptFailureHook,
  type EventFailure,
  PartialBatchError,
} from './call/attempt-failure.js';

export type { LeaseLoss, LeaseLossCause, LeaseLossHook } from './slots/lease-keeper.js';
export { Delivery, type DeliveryOptions } from './delivery.js';
export {
  type DeliveryOverrides,
  type DeliverySettings,
  defaultDeliverySettings,
  parseDeliverySettings,
} from './delivery-settings.js';
export { notifyOfCommits } from './notifications.js';

export { DeliveryOperator, type ShardLag, type ShardLeases } from './operator/delivery-operator.js';
export type { BlockedFilter, BlockedRow } from '@framework/core/adapter';
export type { StartFailure } from './database-worker.js';
export type { DatabaseAnswers, DatabaseFailure, BlockedPage } from './operator/blocked-page.js';
export type { EventExplanation, HandlerStatus } from './operator/explain-event.js';
