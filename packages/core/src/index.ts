import { assertSupportedNode } from './supported-node.js';

// In the order in which a datum flows: model, action, execution, persistence, shards, errors.
export {
  Model,
  type AnyEntity,
  Entity,
  type New,
  type NewEntity,
  type OwnFields,
  notNull,
} from './model/model.js';
export { type ModelClass, modelNameOf, isStorableText } from './model/model-class.js';
export {
  type EventClass,
  ModelEvent,
  eventTypeOf,
  currentPayload,
  decodeEvent,
  encodePayload,
} from './model/model-event.js';
export { checkText, exactJson } from './model/exact-json.js';

export { Id } from './id/id.js';
export { ShardedId, ShardedIdGenerator, shardedIdCodec } from './id/sharded-id.js';
export { type IdSource, useIdSource, randomUuid } from './id/uuid-v7.js';

export {
  Action,
  type ActionClass,
  type ActionOptions,
  FrameworkAction,
  actionNameOf,
  type Principal,
} from './action/action.js';
export { ActionRegistry, type AnyAction, type RegisteredAction } from './action/action-registry.js';
export type { ParamsEncoder } from './action/params.js';
export type { IdempotencySettings } from './idempotency/key-cleanup.js';
export type { ResultCodec } from './idempotency/result-codec.js';
export { ActionExecutor } from './action/action-executor.js';
export type { ExecutorOptions, ExecutionConfiguration } from './action/options.js';
export type { ExecutionLimits } from './config/execution-limits.js';
export type { GroupSettings } from './group-commit/group-commit.js';
export type { TurnSettings } from './reads/keyed-mutex.js';
export type { Plan, ShardPlan } from './action/plan.js';
export { type RetryPolicy, defaultRetryPolicy } from './action/retry-policy.js';
export { type Clock, systemClock } from './clock.js';
export { outsideRequests } from './outside-requests.js';

export {
  OpenTransactions,
  type GroupOutcome,
  type PersistOptions,
  type PersistOutcome,
  type TransactionManager,
} from './storage/transaction-manager.js';
export { type Repository, type ModelSource, type Page, pageSize } from './storage/repository.js';
export {
  type ActionRecord,
  type Change,
  type ChangeSet,
  type EventRecord,
  updateOfOtherTimeline,
} from './storage/change-set.js';
export { madeModels, readById, readByIds } from './reads/read-batcher.js';
export type {
  HandlerKey,
  IdempotencyKeys,
  KeyRecord,
  KeyScope,
  StoredKey,
  HandledEvent,
} from './storage/idempotency-keys.js';
export type { EventLog, LoggedEvent, DeliverableEvent } from './storage/event-log.js';
export type { Database, DatabaseDriver } from './storage/database.js';

export {
  type DeliveryStore,
  slotOf,
  type LeasedSlot,
  type LeaseRenewal,
  type SlotLease,
  type SlotLeases,
  type DeliveryLog,
  type EventBatch,
  type NotificationChannel,
  type LogPartitions,
} from './storage/delivery-store.js';
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
} from './storage/handler-cursors.js';
export type {
  DuePlace,
  LeasedModel,
  BlockedAttempt,
  BlockedEvent,
  BlockedEvents,
  BlockedHead,
  BlockedModel,
  BlockedOutcome,
  BlockedPlace,
  DeadLetters,
  DeadLettersStep,
  BlockedFilter,
  BlockedRow,
  StepPlace,
} from './storage/blocked-events.js';

export { ShardIdentifier } from './sharding/shard-identifier.js';
export { type ShardingStrategy, EmbeddedBitsShardingStrategy } from './sharding/sharding-strategy.js';
export { type FrameworkConfig, type MigrateMode, parseFrameworkConfig } from './config/framework-config.js';
export { kebabCasePath } from './config/config-keys.js';
export {
  type DatabaseConfig,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from './config/sharding-config.js';
export {
  type ConfiguredDatabase,
  configuredDatabases,
  type DatabaseDelivery,
  DatabaseRegistry,
  type ShardStatus,
  openDatabases,
} from './sharding/database-registry.js';
export { databaseName, databasePlace, Secret } from './config/database-url.js';

export { type ErrorCode, FrameworkError, errorCodes } from './errors/framework-error.js';
export {
  IdempotencyKeyReusedError,
  InvalidIdempotencyKeyError,
  InvalidParamsError,
  NestedExecutionError,
  PlanSealedError,
  PlanUnavailableError,
  StagedTwiceError,
  UnknownActionError,
  LimitExceededError,
} from './errors/action-errors.js';
export {
  InvalidCursorError,
  InvalidIdError,
  InvalidModelError,
  InvalidShardError,
  UnstorableValueError,
} from './errors/value-errors.js';
export {
  EntityNotFoundError,
  NotUniqueError,
  ShardUndeterminedError,
  CommitOutcomeUnknownError,
  ConstraintViolationError,
  HistoryChangedError,
  ShardUnavailableError,
  StaleRecordError,
  StorageFailureError,
  TransientStorageError,
  type UnavailableKind,
  NestedTransactionError,
  TransactionOverError,
} from './errors/storage-errors.js';
export { DatabaseNotReadyError, type NotReadyKind } from './errors/database-not-ready-error.js';
export {
  CrossShardError,
  NoUsableShardError,
  PartialCommitError,
  UnknownShardError,
  ConfigurationError,
  type ConfigurationIssue,
} from './errors/configuration-errors.js';
export {
  HandlerInUseError,
  HandlerNamesError,
  UnknownHandlerError,
  HandlerTimeoutError,
} from './errors/handler-errors.js';
export { InvariantViolationError } from './errors/invariant-violation.js';

assertSupportedNode();
