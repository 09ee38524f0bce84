import { type Clock, systemClock } from '../clock.js';
import { checkNamespace } from '../config/framework-config.js';
import {
  type ExecutionLimits,
  type GroupSettings,
  type IdempotencySettings,
  type ModelLockSettings,
  type OptionNames,
  type RangesOf,
  type RetryPolicy,
  defaultExecutionLimits,
  defaultGroupSettings,
  defaultIdempotencySettings,
  defaultModelLockSettings,
  defaultRetryPolicy,
  executionLimitRanges,
  groupRanges,
  idempotencyRanges,
  modelLockRanges,
  optionsOf,
  refuseUnknownOptions,
  retryRanges,
  settingsOf,
} from '../config/settings.js';
import { NestedExecutionError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { GroupCommit } from '../group-commit/group-commit.js';
import { modelNameOf } from '../id/model-class.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import { KeySweep } from '../idempotency/key-cleanup.js';
import { KeySearch } from '../idempotency/key-search.js';
import { copyOfValue } from '../model/exact-json.js';
import { Entity } from '../model/model.js';
import { type EventClass, EventTypes } from '../model/model-event.js';
import { type Observer, observeWith } from '../observer.js';
import { KeyedMutex } from '../reads/keyed-mutex.js';
import { CombinedReads } from '../reads/read-batcher.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import type { ModelMapper } from '../storage/repository.js';
import { currentAttempt } from '../storage/transaction-manager.js';
import { ActionRecorder } from './action-recorder.js';
import { ActionRegistry, type AnyAction } from './action-registry.js';
import { type ActionClass, type ActionDeclaration, type Principal, actionNameOf } from './action.js';
import type { ExecutionEnvironment } from './attempt.js';
import { CommitListeners } from './commit.js';
import { type ExecutionConfiguration, executionConfigurationNames } from './execution-configuration.js';
import { Execution } from './execution.js';

/** What an executor needs. */
export interface ExecutorOptions {
  /** Names separated by dots, each of letters, digits, `_` and `-`; written with every event. At most 255 characters. */
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
   * Whether the plans of concurrent executions on one shard are written together. An object turns this on, and changes its
   * settings. Each execution can decide otherwise. Default false.
   */
  readonly groupCommit?: boolean | Partial<GroupSettings>;
  /**
   * Whether executions of this executor that read the same model by its id wait for each other, so that they do not make each
   * other stale. An object leaves this on, and changes its settings. Default true.
   */
  readonly modelLocks?: boolean | Partial<ModelLockSettings>;
  /** Whether to refuse actions without a policy, so that nobody forgets to say who may execute one. Default false. */
  readonly requirePolicies?: boolean;
  /** Traces and measures what the executor does, such as `new Telemetry()` of `@framework/telemetry`. Default: nobody does. */
  readonly observer?: Observer;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Returns a number from 0 to 1, for jitter. Default: `Math.random`. */
  readonly random?: () => number;
}

const executorOptionNames: OptionNames<ExecutorOptions> = {
  namespace: true,
  databases: true,
  repositories: true,
  actions: true,
  retry: true,
  limits: true,
  idempotency: true,
  groupCommit: true,
  modelLocks: true,
  requirePolicies: true,
  observer: true,
  clock: true,
  random: true,
};

/**
 * Executes actions: performs them, commits what they staged, and performs them again when another execution has changed the rows
 * first.
 *
 *     execute ──────▶ Execution ──────▶ Attempt ───────▶ commit
 *     finds and       attempts, until   asks the policy,  in a group, or in one
 *     records the     one is committed  performs, makes   transaction per shard
 *     action                            the change sets
 *
 * @example apps/counter/src/open-counters.ts
 *
 * ```ts
 * const executor = new ActionExecutor({
 *   namespace,
 *   databases,
 *   repositories: [repository],
 *   actions: [new OpenCounterAction(systemClock), new IncreaseCounterAction(systemClock, repository)],
 * });
 * ```
 *
 * @example apps/counter/src/main.ts
 *
 * ```ts
 * await executor.execute(you, IncreaseCounterAction, { id, by: 5 }, once);
 * ```
 */
export class ActionExecutor {
  readonly #actions: ActionRegistry;
  readonly #recorder: ActionRecorder;
  readonly #environment: ExecutionEnvironment;

  /**
   * @throws InvariantViolationError `invariant-violation` when two repositories store the same model or models with the same
   * name, when a repository reads other databases or stores models of another copy of the framework, when the result of an action is a
   * model that no repository can write as JSON, or when an action lacks a required policy
   * @throws ConfigurationError `invalid-configuration` when the namespace is invalid, or when an option or a setting is unknown
   * or out of range
   */
  constructor(options: ExecutorOptions) {
    refuseUnknownOptions('', executorOptionNames, options);
    const actions = options.actions instanceof ActionRegistry ? options.actions.actions : options.actions;
    this.#actions = new ActionRegistry(actions, options.repositories);
    if (options.requirePolicies === true) assertPolicies(actions);
    checkNamespace(options.namespace);
    this.#environment = environmentOf(options);
    const { limits, clock } = this.#environment;
    this.#recorder = new ActionRecorder(options.namespace, limits, clock);
  }

  /**
   * Calls the listener right after each commit, with the shard. Delivery in the same process is woken in this way.
   *
   * @returns a function that removes the listener
   */
  onCommit(listener: (shard: ShardIdentifier) => void): () => void {
    return this.#environment.listeners.add(listener);
  }

  /**
   * Reserves the `event_type` of each class for it, as staging an event does: no other class can then be staged under it.
   *
   * @throws InvariantViolationError `invariant-violation` when another class already has it
   */
  claimEventTypes(eventClasses: Iterable<EventClass>): void {
    for (const eventClass of eventClasses) this.#environment.eventTypes.claim(eventClass);
  }

  /**
   * Executes an action, and resolves with its result when everything that it staged is committed.
   *
   * The params are copied at once, and again for each attempt: later changes by the caller have no effect.
   *
   * @throws CrossShardException `cross-shard` when the plan spans shards and that is not allowed; nothing written
   * @throws StaleRecordError `stale-record` when the last attempt was stale, too; nothing written
   * @throws PartialCommitError `partial-commit` when a shard failed after another one had committed; only with `allowCrossShard`
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when the outcome could not be found out
   * @throws IdempotencyKeyReusedError `idempotency-key-reused` when the key belongs to another request
   * @throws InvalidIdempotencyKeyError `invalid-idempotency-key` when the key is empty, too long or not storable
   * @throws ConfigurationError `invalid-configuration` when an option is unknown, or a setting in `retry` is out of range
   * @throws InvariantViolationError `invariant-violation` when no principal is given
   * @throws whatever the action's policy or `perform` throws; then nothing is written
   */
  async execute<Params, Result>(
    principal: Principal,
    actionClass: ActionClass<Params, Result> & ActionDeclaration<NoInfer<Params>, NoInfer<Result>>,
    params: NoInfer<Params>,
    configuration: ExecutionConfiguration = {},
  ): Promise<Result> {
    const registered = this.#actions.get(actionClass);
    const outer = currentAttempt();
    if (outer !== undefined && !outer.plan.sealed)
      throw new NestedExecutionError(registered.name, outer.actionName);
    const options = optionsOf('', executionConfigurationNames, configuration);
    // The record and every attempt get the same params, even if the caller's have getters that answer differently each time.
    const copy = copyOfValue(params);
    return this.#environment.observe({ kind: 'execute', action: registered.name }, () => {
      const { record, newParams } = this.#recorder.record(registered, principal, copy, options);
      const execution = new Execution<Params, Result>(this.#environment, {
        registered,
        principal,
        newParams: newParams as () => Params,
        record,
        configuration: options,
      });
      return execution.run();
    });
  }
}

function assertPolicies(actions: readonly AnyAction[]): void {
  const open = actions.filter(({ policy }) => policy === undefined);
  if (open.length === 0) return;
  const names = open.map((action) => actionNameOf(action.constructor as ActionClass<never, unknown>));
  throw new InvariantViolationError(
    `This executor requires policies, but these actions have none: ${names.join(', ')}`,
  );
}

/** @throws as the constructor of {@link ActionExecutor} */
function environmentOf(options: ExecutorOptions): ExecutionEnvironment {
  const { databases, groupCommit = false, modelLocks = true, clock = systemClock } = options;
  const observe = observeWith(options.observer);
  const idempotency = settingsOf(
    'idempotency',
    defaultIdempotencySettings,
    idempotencyRanges,
    options.idempotency,
  );
  const groups = switched('groupCommit', defaultGroupSettings, groupRanges, groupCommit);
  const locks = switched('modelLocks', defaultModelLockSettings, modelLockRanges, modelLocks);
  return {
    databases,
    repositories: byModel(options.repositories, databases),
    eventTypes: new EventTypes(),
    limits: settingsOf('limits', defaultExecutionLimits, executionLimitRanges, options.limits),
    retry: settingsOf('retry', defaultRetryPolicy, retryRanges, options.retry),
    keyLifetimeMs: idempotency.keyLifetimeMs,
    keySearch: new KeySearch(databases, idempotency.searchWaitMs),
    keySweep: new KeySweep(databases, idempotency),
    combinedReads: new CombinedReads(clock),
    mutex: modelLocks === false ? undefined : new KeyedMutex(locks, clock),
    groups: new GroupCommit(databases, groups, clock, observe),
    isGrouped: groupCommit !== false,
    listeners: new CommitListeners(),
    observe,
    clock,
    // oxlint-disable-next-line no-restricted-properties -- the default of the port
    random: options.random ?? Math.random,
  };
}

function byModel(
  repositories: readonly ModelMapper[],
  databases: DatabaseRegistry,
): ReadonlyMap<unknown, ModelMapper> {
  const map = new Map<unknown, ModelMapper>();
  const names = new Set<string>();
  for (const repository of repositories) {
    const name = modelNameOf(repository.model);
    if (!(repository.model.prototype instanceof Entity)) {
      throw new InvariantViolationError(
        `${name} extends no Entity or Model of this copy of @framework/core, so its events would be lost: install one copy only`,
      );
    }
    if ((repository.databases ?? databases) !== databases) {
      throw new InvariantViolationError(
        `The repository of ${name} reads other databases than those of the executor: create it with the same registry`,
      );
    }
    if (map.has(repository.model))
      throw new InvariantViolationError(`Two repositories store ${name}: pass only one`);
    if (names.has(name)) {
      throw new InvariantViolationError(
        `Two classes of models are named ${name}: declare a different static readonly modelName on one of them`,
      );
    }
    names.add(name);
    map.set(repository.model, repository);
  }
  return map;
}

/** Reads the settings of an option that may also be a boolean, which stands for the default settings. */
function switched<T extends object>(
  path: string,
  defaults: T,
  ranges: RangesOf<T>,
  option: boolean | Partial<T>,
): T {
  return settingsOf(path, defaults, ranges, typeof option === 'boolean' ? undefined : option);
}
