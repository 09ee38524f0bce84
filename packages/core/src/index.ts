import { assertSupportedNode } from './supported-node.js';

// For applications, in the order in which data flows: model, action, execution, shards, errors.
export { Model, Entity, type New, type NewEntity, notNull } from './model/model.js';
export type { ModelClass } from './id/model-class.js';
export { type EventClass, ModelEvent } from './model/model-event.js';
export {
  type DefinedEventClass,
  type DefinedFields,
  DefinedModel,
  type DefinedModelClass,
  type EventFields,
  type ModelFields,
  type NamedModel,
  type NewDefined,
  defineEvent,
  defineModel,
} from './model/define-model.js';

export { Id, idCodec, ShardedId, shardedIdCodec } from './id/id.js';

export { bigintCodec, decimalCodec, instantCodec } from './model/exact-json.js';

export {
  Action,
  type ActionClass,
  type ActionOptions,
  type ActionPolicy,
  FrameworkAction,
  type Principal,
} from './action/action.js';
export { ActionRegistry } from './action/action-registry.js';
export { ActionExecutor, type ExecutorOptions } from './action/action-executor.js';
export {
  ExecutionConfiguration,
  type ExecutionConfigurationBuilder,
} from './action/execution-configuration.js';
export type { Plan } from './action/plan.js';
export { type RetryPolicy, defaultRetryPolicy } from './config/settings.js';
export { type Clock, systemClock } from './clock.js';

export type { Repository, Page, PageRequest } from './storage/repository.js';

export { ShardIdentifier } from './id/shard-identifier.js';
export type { ShardingStrategy } from './storage/repository.js';
export { EmbeddedBitsShardingStrategy } from './reads/repository-reads.js';
export { type FrameworkConfig, parseFrameworkConfig } from './config/framework-config.js';
export { DatabaseRegistry, openDatabases } from './storage/database-registry.js';

export { type ErrorCode, FrameworkError, InvariantViolationError } from './errors/framework-error.js';
export {
  AccessDeniedError,
  IdempotencyKeyReusedError,
  InvalidIdempotencyKeyError,
  InvalidParamsError,
  UnknownActionError,
  LimitExceededError,
} from './errors/action-errors.js';
export { InvalidCursorError, InvalidIdError } from './errors/value-errors.js';
export {
  EntityNotFoundError,
  NotUniqueError,
  CommitOutcomeUnknownError,
  ConstraintViolationError,
  ShardUnavailableError,
  StaleRecordError,
  TransientStorageError,
} from './storage/storage-errors.js';
export {
  CrossShardException,
  PartialCommitError,
  UnknownShardError,
  ConfigurationError,
} from './config/configuration-errors.js';

assertSupportedNode();
