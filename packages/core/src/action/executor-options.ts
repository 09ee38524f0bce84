import type { Clock } from '../clock.js';
import type { GroupSettings } from '../group/group-settings.js';
import type { IdempotencySettings } from '../idempotency/idempotency-settings.js';
import type { Repository } from '../persistence/repository.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { TurnSettings } from '../turn/turn-settings.js';
import type { ActionRegistry, AnyAction } from './action-registry.js';
import type { ExecutionLimits } from './execution-limits.js';
import type { RetryPolicy } from './retry-policy.js';

/** What an executor needs. */
export interface ExecutorOptions {
  /** Names with dots between, each of letters, digits, `_` and `-`; written with every event. At most 255 characters. */
  readonly namespace: string;
  readonly databases: DatabaseRegistry;
  /** One for each class of models that actions stage. */
  readonly repositories: readonly Repository[];
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
   * Whether executions of this executor that read the same model by its id take turns, so that they are not stale
   * because of each other, or how. Default true.
   */
  readonly turns?: boolean | Partial<TurnSettings>;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Gives a number from 0 to 1, for jitter. Default: `Math.random`. */
  readonly random?: () => number;
}
