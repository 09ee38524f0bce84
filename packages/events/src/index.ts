// In the order in which a datum flows: handler, registry, envelope, context, delivery, operators.
export type {
  AnyEventHandler,
  AnyHandledEvent,
  BatchEventHandler,
  EventHandler,
  EventSelection,
} from './handler/event-handler.js';
export type { EventHandlerOptions } from './handler/handler-options.js';
export type { HandlerRetry } from './handler/handler-retry.js';
export { type EventHandlerClass, FrameworkEventHandler } from './handler/framework-event-handler.js';
export { EventHandlerRegistry, type RegisteredHandler } from './handler/event-handler-registry.js';
export type { EventEnvelope } from './handler/event-envelope.js';
export type { RestartHook, RestartNeed } from './call/abandoned-calls.js';
export { errorText } from './call/error-text.js';
export type { AttemptFailure, AttemptFailureHook } from './call/attempt-failure.js';
export type { HandlerContext, HandlerExecution } from './handler/handler-context.js';

export { Delivery, type DeliveryOptions } from './delivery.js';
export {
  type DeliveryOverrides,
  type DeliverySettings,
  defaultDeliverySettings,
} from './delivery-settings.js';
export { parseDeliverySettings } from './parse-delivery-settings.js';
export { hintCommits } from './hint-commits.js';

export { DeliveryOperator, type ShardLag, type ShardLeases } from './operator/delivery-operator.js';
export type { DatabaseAnswers, DatabaseFailure } from './operator/database-answers.js';
export type { ParkedPage } from './operator/find-parked-page.js';
export type { EventExplanation, HandlerStanding } from './operator/event-explanation.js';
