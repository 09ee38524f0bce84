import { assertSupportedNode } from './supported-node.js';

// For applications, in the order of the walk: model, action, execution, shards, errors.
export { Model, Entity, type New, type NewEntity, notNull } from './model/model.js';
export type { ModelClass } from './model/model-class.js';
export { type EventClass, ModelEvent } from './model/model-event.js';

export { Id, idCodec } from './id/id.js';
export { ShardedId, shardedIdCodec } from './id/sharded-id.js';

export { bigintCodec, decimalCodec, instantCodec } from './model/value-codecs.js';

export {
  Action,
  type ActionClass,
  type ActionOptions,
  FrameworkAction,
  type Principal,
} from './action/action.js';
export { ActionRegistry } from './action/action-registry.js';
export { ActionExecutor } from './action/action-executor.js';
export type { ExecutorOptions, ExecutionConfiguration } from './action/options.js';
export type { Plan } from './action/plan.js';
export { type RetryPolicy, defaultRetryPolicy } from './action/retry-policy.js';
export { type Clock, systemClock } from './clock.js';

export type { Repository, Page, PageRequest } from './storage/repository.js';

export { ShardIdentifier } from './sharding/shard-identifier.js';
export { type ShardingStrategy, EmbeddedBitsShardingStrategy } from './sharding/sharding-strategy.js';
export { type FrameworkConfig, parseFrameworkConfig } from './config/framework-config.js';
export { DatabaseRegistry, openDatabases } from './sharding/database-registry.js';

export { type ErrorCode, FrameworkError, InvariantViolationError } from './errors/framework-error.js';
export {
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
} from './errors/storage-errors.js';
export {
  CrossShardError,
  PartialCommitError,
  UnknownShardError,
  ConfigurationError,
} from './errors/configuration-errors.js';

assertSupportedNode();
