import { assertSupportedNode } from './supported-node.js';

// In the order in which a datum flows: model, action, execution, persistence, shards, errors.
export { Model } from './model/model.js';
export { type AnyEntity, Entity } from './model/entity.js';
export type { New, NewEntity, OwnFields } from './model/fields.js';
export { type ModelClass, modelNameOf } from './model/model-class.js';
export { notNull } from './model/not-null.js';
export { type EventClass, ModelEvent, eventTypeOf } from './model/model-event.js';
export { currentPayload, decodeEvent, encodePayload } from './model/event-codec.js';
export { checkText, exactJson } from './model/exact-json.js';
export { isStorableText } from './model/storable-text.js';

export { Id } from './id/id.js';
export { ShardedId } from './id/sharded-id.js';
export { ShardedIdGenerator } from './id/sharded-id-generator.js';
export { type IdSource, useIdSource } from './id/id-source.js';
export { randomUuid } from './id/uuids.js';
export { shardedIdCodec } from './id/id-codec.js';

export { Action, type ActionClass } from './action/action.js';
export { type ActionOptions, FrameworkAction, actionNameOf } from './action/framework-action.js';
export { ActionRegistry, type AnyAction, type RegisteredAction } from './action/action-registry.js';
export type { ParamsEncoder } from './action/params-encoder.js';
export type { IdempotencySettings } from './idempotency/idempotency-settings.js';
export type { ResultCodec } from './idempotency/result-codec.js';
export { ActionExecutor } from './action/action-executor.js';
export type { ExecutorOptions } from './action/executor-options.js';
export type { ExecutionConfiguration } from './action/execution-configuration.js';
export type { ExecutionLimits } from './action/execution-limits.js';
export type { GroupSettings } from './group/group-settings.js';
export type { TurnSettings } from './turn/turn-settings.js';
export type { Plan, ShardPlan } from './action/plan.js';
export type { Principal } from './action/principal.js';
export { type RetryPolicy, defaultRetryPolicy } from './action/retry-policy.js';
export { type Clock, systemClock } from './clock.js';
export { outsideRequests } from './outside-requests.js';

export { OpenTransactions } from './persistence/open-transactions.js';
export type { Repository } from './persistence/repository.js';
export {
  type ActionRecord,
  type Change,
  type ChangeSet,
  type EventRecord,
  updateOfOtherTimeline,
} from './persistence/change-set.js';
export type { ModelSource } from './read/model-source.js';
export { madeModels, readById, readByIds } from './read/read-by-id.js';
export type {
  GroupOutcome,
  PersistOptions,
  PersistOutcome,
  TransactionManager,
} from './persistence/transaction-manager.js';
export type {
  HandlerKey,
  IdempotencyKeys,
  KeyRecord,
  KeyScope,
  StoredKey,
} from './persistence/idempotency-keys.js';
export type { HandledEvent } from './idempotency/handled-event.js';
export type { EventLog, LoggedEvent } from './persistence/event-log.js';
export { type Page, pageSize } from './persistence/page.js';
export type { Database, DatabaseDriver } from './persistence/database-driver.js';

export type { DeliveryStore } from './delivery/delivery-store.js';
export { slotOf } from './delivery/slot-of.js';
export type { LeasedSlot, LeaseRenewal, SlotLease, SlotLeases } from './delivery/slot-leases.js';
export {
  type Cursor,
  type CursorMove,
  type HandlerCursor,
  type HandlerCursors,
  type HandlerLag,
  type HandlerRegistration,
  type KnownHandler,
  type StartFrom,
  assertDistinctHandlers,
} from './delivery/handler-cursors.js';
export type { DeliveryLog, EventBatch } from './delivery/delivery-log.js';
export type { DeliverableEvent } from './delivery/deliverable-event.js';
export type {
  DuePlace,
  LeasedModel,
  ParkedAttempt,
  ParkedEvent,
  ParkedEvents,
  ParkedHead,
  ParkedModel,
  ParkedOutcome,
  ParkedPlace,
} from './delivery/parked-events.js';
export type {
  DeadLetters,
  DeadLettersStep,
  ParkedFilter,
  ParkedRow,
  StepPlace,
} from './delivery/dead-letters.js';
export type { HintChannel } from './delivery/hint-channel.js';
export type { LogPartitions } from './delivery/log-partitions.js';

export { ShardIdentifier } from './sharding/shard-identifier.js';
export type { ShardingStrategy } from './sharding/sharding-strategy.js';
export { EmbeddedBitsShardingStrategy } from './sharding/embedded-bits-sharding-strategy.js';
export { type FrameworkConfig, type MigrateMode, parseFrameworkConfig } from './sharding/framework-config.js';
export { kebabCasePath } from './sharding/configuration-keys.js';
export {
  type DatabaseConfig,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from './sharding/sharding-config.js';
export { type ConfiguredDatabase, configuredDatabases } from './sharding/configured-databases.js';
export {
  type DatabaseDelivery,
  DatabaseRegistry,
  type ShardStatus,
  openDatabases,
} from './sharding/database-registry.js';
export { databaseName, databasePlace } from './sharding/database-url.js';
export { Secret } from './sharding/secret.js';

export { type ErrorCode, FrameworkException, errorCodes } from './errors/framework-exception.js';
export {
  IdempotencyKeyReusedException,
  InvalidIdempotencyKeyException,
  InvalidParamsException,
  NestedExecutionException,
  PlanSealedException,
  PlanUnavailableException,
  StagedTwiceException,
  UnknownActionException,
} from './errors/action-exceptions.js';
export {
  InvalidCursorException,
  InvalidIdException,
  InvalidModelException,
  InvalidShardException,
  UnstorableValueException,
} from './errors/value-exceptions.js';
export {
  EntityNotFoundException,
  NotUniqueException,
  ShardUndeterminedException,
} from './errors/repository-exceptions.js';
export {
  CommitOutcomeUnknownException,
  ConstraintViolationException,
  HistoryChangedException,
  ShardUnavailableException,
  StaleRecordException,
  StorageFailureException,
  TransientStorageException,
  type UnavailableKind,
} from './errors/storage-exceptions.js';
export { DatabaseNotReadyError, type NotReadyKind } from './errors/database-not-ready-error.js';
export {
  CrossShardException,
  NoUsableShardException,
  PartialCommitException,
  UnknownShardException,
} from './errors/sharding-exceptions.js';
export { NestedTransactionException, TransactionOverException } from './errors/transaction-exceptions.js';
export { ConfigurationException, type ConfigurationFault } from './errors/configuration-exception.js';
export {
  HandlerInUseException,
  HandlerNamesException,
  UnknownHandlerException,
} from './errors/handler-exceptions.js';
export { HandlerTimeoutException } from './errors/handler-timeout-exception.js';
export { LimitExceededException } from './errors/limit-exceeded-exception.js';
export { InvariantViolation } from './errors/invariant-violation.js';

assertSupportedNode();
