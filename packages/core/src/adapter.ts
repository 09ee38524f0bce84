import { assertSupportedNode } from './supported-node.js';

// For code that stores, delivers or tests: ports, the records that pass through them, and what their implementations share.
export type { AnyEntity } from './model/model.js';
export { type ModelRead, readOf, setRead } from './model/provenance.js';
export { ModelsByName, modelNameOf, isStorableText } from './id/model-class.js';
export { EventTypes, eventTypeOf, currentPayload, decodeEvent, encodePayload } from './model/model-event.js';
export { checkText, exactJson } from './model/exact-json.js';

export { type IdSource, useIdSource, randomUuid } from './id/uuid-v7.js';

export { actionNameOf } from './action/action.js';
export type { ActionDeclaration } from './action/action.js';
export type { AnyAction } from './action/action-registry.js';

export type { IdempotencySettings } from './config/settings.js';

export type { ExecutionLimits } from './config/settings.js';
export type { GroupSettings } from './config/settings.js';
export type { ModelLockSettings } from './config/settings.js';

export { outsideRequests } from './clock.js';
export { type Observe, type ObservedEvent, type Observer, type Operation, observeWith } from './observer.js';

export {
  OpenTransactions,
  type GroupOutcome,
  type PersistOptions,
  type PersistOutcome,
  type TransactionManager,
} from './storage/transaction-manager.js';
export {
  type ModelJsonCodec,
  type ModelMapper,
  type ModelSource,
  PageOrder,
  type PagePlace,
  type ValueKind,
  pageOf,
  pageSize,
} from './storage/repository.js';
export {
  type ActionRecord,
  type Change,
  type ChangeSet,
  type EventRecord,
  slotOf,
  updateOfOtherTimeline,
} from './storage/change-set.js';
export { RepositoryReads } from './reads/repository-reads.js';
export { instantiate, readById, readByIds } from './reads/read-batcher.js';
export { handledEventOf } from './storage/idempotency-keys.js';
export type {
  HandlerKey,
  IdempotencyKeys,
  KeyRecord,
  KeyScope,
  StoredKey,
  HandledEvent,
} from './storage/idempotency-keys.js';
export type { EventLog, LoggedEvent, DeliverableEvent } from './storage/event-log.js';
export type { Database, DatabaseAddress, DatabaseDriver, PoolUse } from './storage/database.js';

export type {
  DeliveryStore,
  LeasedSlot,
  LeaseRenewal,
  SlotLease,
  SlotLeases,
  DeliveryLog,
  EventBatch,
  NotificationChannel,
  LogPartitions,
  RetainedLog,
} from './storage/delivery-store.js';
export type {
  DeadLetterGroup,
  EventDelivery,
  FoundKey,
  LogFilter,
  LogOverview,
  LogSearch,
  LoggedAction,
  OperatorChange,
  OperatorOutcome,
  OperatorStore,
  RecordedChange,
  TrackedEvent,
} from './storage/operator-store.js';
export type { EventFeed, EventSource, EventSourceState, SourceTarget } from './storage/event-source.js';
export {
  type Cursor,
  type CursorMove,
  type HandlerCursor,
  type HandlerCursors,
  type HandlerLag,
  type HandlerRegistration,
  type KnownHandler,
  type StartFrom,
} from './storage/handler-cursors.js';
export {
  type AttemptCounts,
  type BlockedAttempt,
  type BlockedFailure,
  type BlockedFilter,
  type BlockedHead,
  type BlockedModel,
  type BlockedModels,
  type BlockedMove,
  type BlockedPlace,
  type BlockedRow,
  type DeadLetters,
  type DeadLettersStep,
  type DuePlace,
  type LeasedModel,
  type ModelPosition,
  type StepPlace,
  comparePositions,
  positionAfter,
} from './storage/blocked-models.js';

export { type MigrateMode, configurationKeys } from './config/framework-config.js';
export type { Secret } from './config/database-url.js';
export { kebabCasePath, nearestName, unknownKeys, unknownKeysBesidePassword } from './config/config-keys.js';
export { type OptionNames, refuseUnknownOptions } from './config/settings.js';
export {
  type DatabaseConfig,
  type MemberConfig,
  type ShardingConfig,
  primaryConfig,
} from './config/sharding-config.js';
export {
  type ConfiguredDatabase,
  type ShardStatus,
  configuredDatabases,
  type DatabaseDelivery,
} from './storage/database-registry.js';

export {
  NestedExecutionError,
  PlanSealedError,
  PlanUnavailableError,
  StagedTwiceError,
} from './errors/action-errors.js';
export {
  InvalidModelError,
  InvalidShardError,
  UnknownEventTypeError,
  UnreadableEventError,
  UnreadableMessageError,
  UnreadableValueError,
  InvalidPageLimitError,
  UnstorableValueError,
} from './errors/value-errors.js';
export {
  ShardUndeterminedError,
  HistoryChangedError,
  type ConstraintKind,
  StorageFailureError,
  DatabasesClosedError,
  type UnavailableKind,
  NestedTransactionError,
  TransactionOverError,
} from './storage/storage-errors.js';
export { DatabaseNotReadyError, type NotReadyKind } from './errors/database-not-ready-error.js';
export { type ConfigurationIssue, NoUsableShardError } from './config/configuration-errors.js';
export {
  HandlerInUseError,
  HandlerNamesError,
  UnknownHandlerError,
  BrokerUnavailableError,
  HandlerTimeoutError,
  RetryLaterError,
  MessageRefusedError,
  OperatorRequestError,
} from './errors/handler-errors.js';

assertSupportedNode();
