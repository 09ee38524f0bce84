import type { Clock } from '../clock.js';
import type {
  ExecutionLimits,
  GroupSettings,
  IdempotencySettings,
  ModelLockSettings,
  OptionNames,
} from '../config/settings.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { HandledEvent } from '../storage/idempotency-keys.js';
import type { ModelMapper } from '../storage/repository.js';
import type { ActionRegistry, AnyAction } from './action-registry.js';
import type { RetryPolicy } from './retry-policy.js';

/** What an executor needs. */
export interface ExecutorOptions {
  /** Names with dots between, each of letters, digits, `_` and `-`; written with every event. At most 255 characters. */
  readonly namespace: string;
  readonly databases: DatabaseRegistry;
  /** One for each class of models that actions stage. */
  readonly repositories: readonly ModelMapper[];
  readonly actions: readonly AnyAction[] | ActionRegistry;
  /** What to change in the default policy: 5 attempts, backoff from 10 ms to 1 s with full jitter. */
  readonly retry?: Partial<RetryPolicy>;
  /** What to change in the default limits. */
  readonly limits?: Partial<ExecutionLimits>;
  /** What to change in the default handling of idempotency keys. */
  readonly idempotency?: Partial<IdempotencySettings>;
  /**
   * Whether the plans of concurrent executions on one shard are written together, or how; each execution can decide
   * otherwise. Default false.
   */
  readonly groupCommit?: boolean | Partial<GroupSettings>;
  /**
   * Whether executions of this executor that read the same model by its id wait for each other, so that they do not make each
   * other stale, or how. Default true.
   */
  readonly modelLocks?: boolean | Partial<ModelLockSettings>;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Gives a number from 0 to 1, for jitter. Default: `Math.random`. */
  readonly random?: () => number;
}

export const executorOptionNames: OptionNames<ExecutorOptions> = {
  namespace: true,
  databases: true,
  repositories: true,
  actions: true,
  retry: true,
  limits: true,
  idempotency: true,
  groupCommit: true,
  modelLocks: true,
  clock: true,
  random: true,
};

/** How one execution differs from the executor's defaults. */
export interface ExecutionConfiguration {
  /** Whether the plan may span shards, one transaction each. Default false. */
  readonly allowCrossShard?: boolean;
  /** Whether the plan may be written together with those of concurrent executions. Default: as the executor does. */
  readonly groupCommit?: boolean;
  /** What to change in the executor's retry policy for this execution. */
  readonly retry?: Partial<RetryPolicy>;
  /** Texts to write with every event, such as correlation and causation ids; trace context is added by itself. */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Makes repeats harmless: the key is stored with the effect, and the same request under the same key resolves with
   * the first one's result and writes nothing. 1 to 255 characters; keys of different principals are different.
   *
   * Needs an action that declares the schema of its result, or has none, and cannot go with `allowCrossShard`.
   */
  readonly idempotencyKey?: string;
  /**
   * Whether every database is searched for another request under the key before the action is performed. False saves that for
   * a key which is made from what the request asks for, and never used for anything else. In either case one shard holds a
   * key once, and where the same request may have been recorded is asked before its commit. Default true.
   */
  readonly searchKeyOnAllDatabases?: boolean;
  /**
   * The event for which a handler executes the action; set by delivery. The key is then one of handlers: no client can
   * use it, and it is kept until the event cannot be delivered again.
   */
  readonly handledEvent?: HandledEvent;
  /** Called before the execution resolves, when its result is that of an earlier one. */
  readonly onReplayed?: () => void;
}

export const executionConfigurationNames: OptionNames<ExecutionConfiguration> = {
  allowCrossShard: true,
  groupCommit: true,
  retry: true,
  headers: true,
  idempotencyKey: true,
  searchKeyOnAllDatabases: true,
  handledEvent: true,
  onReplayed: true,
};
