import { type Clock, systemClock } from '../clock.js';
import { NestedExecutionException } from '../errors/action-exceptions.js';
import { InvariantViolation } from '../errors/invariant-violation.js';
import { CrossShardException } from '../errors/sharding-exceptions.js';
import { type IdempotencySettings, defaultIdempotencySettings } from '../idempotency/idempotency-settings.js';
import { KeyedRequest } from '../idempotency/keyed-request.js';
import { KeySearch } from '../idempotency/key-search.js';
import { KeySweep } from '../idempotency/key-sweep.js';
import { untilWritten } from '../group/group-commit.js';
import type { GroupSettings } from '../group/group-settings.js';
import { modelNameOf } from '../model/model-class.js';
import type { ActionRecord, ChangeSet } from '../persistence/change-set.js';
import type { StoredKey } from '../persistence/idempotency-keys.js';
import type { Repository } from '../persistence/repository.js';
import type { AttemptReads } from '../read/attempt-reads.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { TurnSettings } from '../turn/turn-settings.js';
import { type ActionClass, perform } from './action.js';
import { ActionRecorder } from './action-recorder.js';
import { ActionRegistry, type AnyAction, type RegisteredAction } from './action-registry.js';
import { boundedJson } from './bounded-json.js';
import { AttemptCommits } from './attempt-commits.js';
import { currentExecution, runAs } from './execution.js';
import type { ExecutionConfiguration } from './execution-configuration.js';
import { type ExecutionLimits, defaultExecutionLimits } from './execution-limits.js';
import { Plan, type ShardPlan } from './plan.js';
import type { Principal } from './principal.js';
import { type RetryPolicy, backoffMs, defaultRetryPolicy } from './retry-policy.js';
import { withDefaults } from './with-defaults.js';

/** What an executor needs. */
export interface ExecutorOptions {
  /** Dot-separated identifiers, written with every event. */
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

/** Runs actions: performs them, commits what they staged, and runs them again when another one was faster. */
export class ActionExecutor {
  readonly #databases: DatabaseRegistry;
  readonly #repositories: ReadonlyMap<unknown, Repository>;
  readonly #actions: ActionRegistry;
  readonly #recorder: ActionRecorder;
  readonly #retry: RetryPolicy;
  readonly #limits: ExecutionLimits;
  readonly #keyLifetimeMs: number;
  readonly #keySearch: KeySearch;
  readonly #keySweep: KeySweep;
  readonly #commits: AttemptCommits;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #commitListeners = new Set<(shard: ShardIdentifier) => void>();

  /** @throws InvariantViolation `invariant-violation` when two repositories store the same model, or a setting is out of its range */
  constructor(options: ExecutorOptions) {
    this.#databases = options.databases;
    this.#repositories = byModel(options.repositories);
    this.#actions =
      options.actions instanceof ActionRegistry ? options.actions : new ActionRegistry(options.actions);
    this.#retry = withDefaults(defaultRetryPolicy, options.retry);
    this.#limits = withDefaults(defaultExecutionLimits, options.limits);
    const idempotency = withDefaults(defaultIdempotencySettings, options.idempotency);
    this.#keyLifetimeMs = idempotency.keyLifetimeMs;
    this.#keySearch = new KeySearch(options.databases, idempotency.searchWaitMs);
    this.#keySweep = new KeySweep(options.databases, idempotency);
    this.#clock = options.clock ?? systemClock;
    this.#commits = new AttemptCommits(options.databases, this.#clock, options);
    this.#random = options.random ?? Math.random;
    this.#recorder = new ActionRecorder(options.namespace, this.#limits, this.#clock);
  }

  /**
   * Calls back at once after each commit, with its shard: wakes what waits for new events in this process.
   *
   * @returns what ends it
   */
  onCommit(listener: (shard: ShardIdentifier) => void): () => void {
    this.#commitListeners.add(listener);
    return () => this.#commitListeners.delete(listener);
  }

  /**
   * Executes an action and resolves with its result when everything it staged is committed.
   *
   * @throws CrossShardException `cross-shard` when the plan spans shards and that is not allowed; nothing written
   * @throws StaleRecordException `stale-record` when the last attempt was stale too; nothing written
   * @throws PartialCommitException `partial-commit`, only with `allowCrossShard`
   * @throws CommitOutcomeUnknownException `commit-outcome-unknown` when the outcome could not be learnt
   * @throws IdempotencyKeyReusedException `idempotency-key-reused` when the key belongs to another request
   * @throws InvalidIdempotencyKeyException `invalid-idempotency-key`
   * @throws whatever perform throws, after which nothing is written
   */
  async execute<Params, Result>(
    principal: Principal,
    actionClass: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    configuration: ExecutionConfiguration = {},
  ): Promise<Result> {
    const registered = this.#actions.get(actionClass);
    const outer = currentExecution();
    if (outer !== undefined && !outer.plan.sealed)
      throw new NestedExecutionException(registered.name, outer.actionName);
    const record = this.#recorder.record(registered, principal, params, configuration);
    const run: Run<Params, Result> = {
      registered,
      principal,
      params,
      record,
      configuration,
      request: undefined,
    };
    const { idempotencyKey } = configuration;
    return idempotencyKey === undefined ? this.#run(run) : this.#runOnce(run, idempotencyKey);
  }

  /** The result of the same request under the same key, else of this execution. */
  async #runOnce<Params, Result>(run: Run<Params, Result>, key: string): Promise<Result> {
    const { registered, params, record, configuration } = run;
    if (configuration.allowCrossShard === true) {
      throw new InvariantViolation(
        `${record.name} was executed with a key and allowCrossShard, but a key is stored on one shard: use a saga`,
      );
    }
    const request = await KeyedRequest.of<Result>(key, record, registered);
    const { idempotencyKeySearch: search = 'everywhere' } = configuration;
    const known = search === 'everywhere' ? await this.#keySearch.everywhere(request.scope) : undefined;
    if (known !== undefined) return replay(request, known, configuration);
    try {
      return await this.#run({ ...run, request });
    } catch (error) {
      if (!KeyedRequest.mayBeOwnEffect(error)) throw error;
      // What refuses the request may be its own earlier effect: a withdrawal that emptied the wallet.
      const stored = await this.#keySearch.afterRefusal(request.scope, params);
      if (stored === undefined) throw error;
      return replay(request, stored, configuration);
    }
  }

  async #run<Params, Result>(run: Run<Params, Result>): Promise<Result> {
    const policy = withDefaults(this.#retry, run.configuration.retry);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#attempt(run);
      } catch (error) {
        if (attempt >= policy.attemptsMax || !policy.retries(error)) throw error;
        await this.#clock.sleep(backoffMs(policy, attempt, this.#random()));
      }
    }
  }

  async #attempt<Params, Result>(run: Run<Params, Result>): Promise<Result> {
    const reads = this.#commits.openReads(run.configuration);
    try {
      return await this.#performAndCommit(run, reads);
    } catch (error) {
      reads.giveBackTurns();
      // Who was refused because of a model that is not committed yet must learn whether it ever is.
      await untilWritten(reads.builtOn);
      throw error;
    } finally {
      reads.giveBackTurns();
    }
  }

  async #performAndCommit<Params, Result>(run: Run<Params, Result>, reads: AttemptReads): Promise<Result> {
    const { registered, principal, params, record: action, configuration, request } = run;
    const plan = new Plan({
      actionName: action.name,
      repositories: this.#repositories,
      limits: this.#limits,
      clock: this.#clock,
    });
    const { result, staged } = await performed(registered, principal, params, plan, reads);
    reads.keepTurnsOf(staged);
    if (staged.length > 1 && configuration.allowCrossShard !== true) {
      throw new CrossShardException(
        action.name,
        staged.map(({ shard }) => shard),
      );
    }
    const changeSets = this.#changeSets(staged, action);
    if (request !== undefined) return this.#commitKeyed(run, request, changeSets, { result, reads });
    await this.#commits.commit(changeSets, configuration, reads);
    this.#tellCommitted(changeSets);
    return result;
  }

  /** Commits the one change set with its key; when the key is taken, gives what was committed under it. */
  async #commitKeyed<Params, Result>(
    run: Run<Params, Result>,
    request: KeyedRequest<Result>,
    changeSets: readonly ChangeSet[],
    { result, reads }: { readonly result: Result; readonly reads: AttemptReads },
  ): Promise<Result> {
    const { record, configuration } = run;
    const key = request.record(result, this.#keyLifetimeMs);
    boundedJson(`result of ${record.name}`, key.result ?? '', this.#limits);
    const keyed = changeSets.map((changes) => ({ ...changes, key }));
    const outcome = await this.#commits.commit(keyed, configuration, reads);
    const shard = keyed[0]?.shard ?? this.#databases.defaultShard;
    if (outcome === 'key-taken') {
      const stored = await request.taken(this.#databases.transactionManager(shard));
      return replay(request, stored, configuration);
    }
    this.#tellCommitted(keyed);
    this.#keySweep.countCommit(shard);
    return result;
  }

  #tellCommitted(changeSets: readonly ChangeSet[]): void {
    for (const { shard } of changeSets) for (const listener of this.#commitListeners) listener(shard);
  }

  /** An action that stages nothing is recorded on the default shard. */
  #changeSets(staged: readonly ShardPlan[], action: ActionRecord): readonly ChangeSet[] {
    if (staged.length === 0)
      return [{ shard: this.#databases.defaultShard, action, changes: [], events: [] }];
    return staged.map((shardPlan) => ({ ...shardPlan, action }));
  }
}

/** One execution, over all its attempts. */
interface Run<Params, Result> {
  readonly registered: RegisteredAction<Params, Result>;
  readonly principal: Principal;
  readonly params: Params;
  readonly record: ActionRecord;
  readonly configuration: ExecutionConfiguration;
  readonly request: KeyedRequest<Result> | undefined;
}

/** Gives the result of the request that was committed under the key. */
function replay<Result>(
  request: KeyedRequest<Result>,
  stored: StoredKey,
  { onReplayed }: ExecutionConfiguration,
): Result {
  const result = request.replay(stored);
  onReplayed?.();
  return result;
}

/** Performs the action and seals its plan, also when it throws. */
async function performed<Params, Result>(
  { action, name }: RegisteredAction<Params, Result>,
  principal: Principal,
  params: Params,
  plan: Plan,
  reads: AttemptReads,
): Promise<{ readonly result: Result; readonly staged: readonly ShardPlan[] }> {
  try {
    const result = await runAs({ actionName: name, plan, reads }, () => perform(action, principal, params));
    return { result, staged: plan.seal() };
  } finally {
    plan.seal();
  }
}

function byModel(repositories: readonly Repository[]): ReadonlyMap<unknown, Repository> {
  const map = new Map<unknown, Repository>();
  for (const repository of repositories) {
    if (map.has(repository.model)) {
      throw new InvariantViolation(`Two repositories store ${modelNameOf(repository.model)}: pass one`);
    }
    map.set(repository.model, repository);
  }
  return map;
}
