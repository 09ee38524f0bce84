import { systemClock } from '../clock.js';
import { checkNamespace } from '../config/framework-config.js';
import {
  type RangesOf,
  defaultExecutionLimits,
  defaultGroupSettings,
  defaultIdempotencySettings,
  defaultModelLockSettings,
  executionLimitRanges,
  groupRanges,
  idempotencyRanges,
  modelLockRanges,
  settingsOf,
} from '../config/settings.js';
import { NestedExecutionError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { GroupCommit } from '../group-commit/group-commit.js';
import { KeySweep } from '../idempotency/key-cleanup.js';
import { KeySearch } from '../idempotency/key-search.js';
import { modelNameOf } from '../model/model-class.js';
import { type EventClass, EventTypes } from '../model/model-event.js';
import { KeyedMutex } from '../reads/keyed-mutex.js';
import { CombinedReads } from '../reads/read-batcher.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { Repository } from '../storage/repository.js';
import { ActionRecorder } from './action-recorder.js';
import { ActionRegistry } from './action-registry.js';
import type { ActionClass, Principal } from './action.js';
import { currentAttempt } from './attempt-context.js';
import type { ExecutorContext } from './attempt.js';
import { CommitListeners } from './commit.js';
import { Execution } from './execution.js';
import type { ExecutionConfiguration, ExecutorOptions } from './options.js';
import { copyOfParams } from './params.js';
import { defaultRetryPolicy, retryRanges } from './retry-policy.js';

/** Runs actions: performs them, commits what they staged, and runs them again when another one was faster. */
export class ActionExecutor {
  readonly #actions: ActionRegistry;
  readonly #recorder: ActionRecorder;
  readonly #context: ExecutorContext;

  /**
   * @throws InvariantViolationError `invariant-violation` when two repositories store the same model, or models of one name
   * @throws ConfigurationError `invalid-configuration` for a namespace that the configuration refuses, too, and a setting that
   * is unknown or out of its range
   */
  constructor(options: ExecutorOptions) {
    this.#actions =
      options.actions instanceof ActionRegistry ? options.actions : new ActionRegistry(options.actions);
    checkNamespace(options.namespace);
    this.#context = contextOf(options);
    this.#recorder = new ActionRecorder(options.namespace, this.#context.limits, this.#context.clock);
  }

  /**
   * Calls back at once after each commit, with its shard: wakes what waits for new events in this process.
   *
   * @returns what ends it
   */
  onCommit(listener: (shard: ShardIdentifier) => void): () => void {
    return this.#context.listeners.add(listener);
  }

  /**
   * Claims the `event_type` of each class for it, as staging an event does: no other class can be staged under it.
   *
   * @throws InvariantViolationError `invariant-violation` when another class has it already
   */
  claimEventTypes(eventClasses: Iterable<EventClass>): void {
    for (const eventClass of eventClasses) this.#context.eventTypes.claim(eventClass);
  }

  /**
   * Executes an action and resolves with its result when everything it staged is committed.
   *
   * What the caller changes in the params afterwards changes nothing here: they are copied at once, and for each attempt.
   *
   * @throws CrossShardError `cross-shard` when the plan spans shards and that is not allowed; nothing written
   * @throws StaleRecordError `stale-record` when the last attempt was stale too; nothing written
   * @throws PartialCommitError `partial-commit`, only with `allowCrossShard`
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when the outcome could not be learnt
   * @throws IdempotencyKeyReusedError `idempotency-key-reused` when the key belongs to another request
   * @throws InvalidIdempotencyKeyError `invalid-idempotency-key`
   * @throws ConfigurationError `invalid-configuration` when `retry` has a setting that is out of its range
   * @throws whatever perform throws, after which nothing is written
   */
  async execute<Params, Result>(
    principal: Principal,
    actionClass: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    configuration: ExecutionConfiguration = {},
  ): Promise<Result> {
    const registered = this.#actions.get(actionClass);
    const outer = currentAttempt();
    if (outer !== undefined && !outer.plan.sealed)
      throw new NestedExecutionError(registered.name, outer.actionName);
    // What is recorded and what is performed are the same, also where the caller's params say something else each time.
    const copy = copyOfParams(params);
    const record = this.#recorder.record(registered, principal, copy, configuration);
    const execution = new Execution<Params, Result>(this.#context, {
      registered,
      principal,
      params: copy,
      record,
      configuration,
    });
    return execution.run();
  }
}

/** @throws as the constructor of {@link ActionExecutor} */
function contextOf(options: ExecutorOptions): ExecutorContext {
  const { databases, groupCommit = false, modelLocks = true, clock = systemClock } = options;
  const retry = settingsOf('retry', defaultRetryPolicy, retryRanges, options.retry);
  const limits = settingsOf('limits', defaultExecutionLimits, executionLimitRanges, options.limits);
  const idempotency = settingsOf(
    'idempotency',
    defaultIdempotencySettings,
    idempotencyRanges,
    options.idempotency,
  );
  const groupSettings = switched('groupCommit', defaultGroupSettings, groupRanges, groupCommit);
  const lockSettings = switched('modelLocks', defaultModelLockSettings, modelLockRanges, modelLocks);
  return {
    databases,
    repositories: byModel(options.repositories),
    eventTypes: new EventTypes(),
    limits,
    retry,
    clock,
    // oxlint-disable-next-line no-restricted-properties -- the default of the port
    random: options.random ?? Math.random,
    keyLifetimeMs: idempotency.keyLifetimeMs,
    keySearch: new KeySearch(databases, idempotency.searchWaitMs),
    keySweep: new KeySweep(databases, idempotency),
    combinedReads: new CombinedReads(clock),
    mutex: modelLocks === false ? undefined : new KeyedMutex(lockSettings, clock),
    groups: new GroupCommit(databases, groupSettings, clock),
    isGrouped: groupCommit !== false,
    listeners: new CommitListeners(),
  };
}

function byModel(repositories: readonly Repository[]): ReadonlyMap<unknown, Repository> {
  const map = new Map<unknown, Repository>();
  const names = new Set<string>();
  for (const repository of repositories) {
    const name = modelNameOf(repository.model);
    if (map.has(repository.model))
      throw new InvariantViolationError(`Two repositories store ${name}: pass one`);
    if (names.has(name)) {
      throw new InvariantViolationError(
        `Two classes of models are named ${name}: declare another static readonly modelName on one`,
      );
    }
    names.add(name);
    map.set(repository.model, repository);
  }
  return map;
}

/** An option that is a switch or settings: `true` and `false` mean the defaults. */
function switched<T extends object>(
  path: string,
  defaults: T,
  ranges: RangesOf<T>,
  option: boolean | Partial<T>,
): T {
  return settingsOf(path, defaults, ranges, typeof option === 'boolean' ? undefined : option);
}
