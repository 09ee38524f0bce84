import type { Clock } from '../clock.js';
import {
  type ExecutionLimits,
  type GroupSettings,
  type IdempotencySettings,
  type ModelLockSettings,
  type RangesOf,
  defaultGroupSettings,
  defaultModelLockSettings,
  groupRanges,
  modelLockRanges,
  settingsOf,
} from '../config/settings.js';
import { CrossShardError, PartialCommitError } from '../errors/configuration-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { GroupCommit } from '../group-commit/group-commit.js';
import { KeySweep } from '../idempotency/key-cleanup.js';
import { type KeySearch, namedShards } from '../idempotency/key-search.js';
import type { KeyedRequest } from '../idempotency/keyed-request.js';
import { modelNameOf } from '../model/model-class.js';
import { EventTypes } from '../model/model-event.js';
import { KeyedMutex } from '../reads/keyed-mutex.js';
import { CombinedReads } from '../reads/read-batcher.js';
import { ReadContext } from '../reads/read-context.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ChangeSet } from '../storage/change-set.js';
import type { StoredKey } from '../storage/idempotency-keys.js';
import type { ModelMapper } from '../storage/repository.js';
import type { PersistOutcome } from '../storage/transaction-manager.js';
import { perform } from './action.js';
import { runInAttempt } from './attempt-context.js';
import { commit } from './commit.js';
import { type Run, isSearched, replay } from './execution.js';
import type { ExecutionConfiguration, ExecutorOptions } from './options.js';
import { boundedJson, copyOfParams } from './params.js';
import { Plan, type ShardPlan, sealPlan } from './plan.js';

/** Makes the attempts of one executor: performs an action once and commits what it staged. */
export class Attempts {
  /** The classes of events that were staged, and those that handlers have claimed. */
  readonly eventTypes: EventTypes = new EventTypes();
  readonly #databases: DatabaseRegistry;
  readonly #repositories: ReadonlyMap<unknown, ModelMapper>;
  readonly #limits: ExecutionLimits;
  readonly #keyLifetimeMs: number;
  readonly #keySearch: KeySearch;
  readonly #keySweep: KeySweep;
  readonly #commits: AttemptCommits;
  readonly #clock: Clock;
  readonly #commitListeners = new Set<(shard: ShardIdentifier) => void>();

  constructor(
    options: ExecutorOptions,
    settings: {
      readonly clock: Clock;
      readonly limits: ExecutionLimits;
      readonly idempotency: IdempotencySettings;
      readonly keySearch: KeySearch;
    },
  ) {
    const { clock, limits, idempotency, keySearch } = settings;
    this.#databases = options.databases;
    this.#repositories = byModel(options.repositories);
    this.#limits = limits;
    this.#keyLifetimeMs = idempotency.keyLifetimeMs;
    this.#keySearch = keySearch;
    this.#keySweep = new KeySweep(options.databases, idempotency);
    this.#clock = clock;
    this.#commits = new AttemptCommits(options.databases, clock, options);
  }

  /**
   * Calls back at once after each commit, with its shard.
   *
   * @returns what ends it
   */
  onCommit(listener: (shard: ShardIdentifier) => void): () => void {
    this.#commitListeners.add(listener);
    return () => this.#commitListeners.delete(listener);
  }

  /**
   * Makes one attempt, once it is certain that none before is committed; throws what perform throws, and what its commit does.
   *
   * @param mayDepend whether it may depend on what is not committed yet
   */
  async make<Params, Result>(run: Run<Params, Result>, mayDepend: boolean): Promise<Result> {
    const earlier = await this.earlierResult(run, 'open');
    if (earlier !== undefined) return earlier.result;
    const reads = this.#commits.openReads(run.configuration, mayDepend);
    try {
      return await this.#performAndCommit(run, reads);
    } catch (error) {
      reads.releaseLocks();
      // A refusal because of a model that is not committed yet holds only if that is committed. A commit checks that
      // itself.
      await reads.untilWritten();
      throw error;
    } finally {
      reads.releaseLocks();
    }
  }

  async #performAndCommit<Params, Result>(run: Run<Params, Result>, reads: ReadContext): Promise<Result> {
    const { record: action, configuration, request } = run;
    const plan = new Plan({
      actionName: action.name,
      repositories: this.#repositories,
      limits: this.#limits,
      clock: this.#clock,
      eventTypes: this.eventTypes,
    });
    const { result, staged } = await performed(run, plan, reads);
    reads.keepLocksOf(staged);
    if (staged.length > 1 && configuration.allowCrossShard !== true) {
      throw new CrossShardError(
        action.name,
        staged.map(({ shard }) => shard),
      );
    }
    const changeSets = this.#changeSets(staged, run, reads);
    if (request !== undefined) {
      const [only] = staged;
      const earlier =
        only === undefined
          ? await this.#earlierEffect(run, request, reads)
          : await this.#earlierNothing(run, request, only.shard);
      if (earlier !== undefined) return replay(request, earlier, configuration);
      return this.#commitKeyed(run, request, changeSets, { result, reads });
    }
    const outcome = await this.#commit(run, changeSets, { result, reads });
    if (outcome !== 'written-before') return result;
    const earlier = await this.earlierResult(run);
    if (earlier === undefined)
      throw new InvariantViolationError(`${action.name} is committed, but none of its attempts`);
    return earlier.result;
  }

  /**
   * The result of an earlier attempt whose outcome was not known, when it was committed.
   *
   * @param asked `open` for attempts only that the log has not ruled out yet
   */
  async earlierResult<Params, Result>(
    { unknownCommits }: Run<Params, Result>,
    asked: 'all' | 'open' = 'all',
  ): Promise<{ readonly result: Result } | undefined> {
    return unknownCommits.happened(this.#databases, asked, (shard) => this.#tellCommitted([shard]));
  }

  /** Commits what an attempt staged, unless an earlier one turns out to be committed. */
  async #commit<Params, Result>(
    { configuration, unknownCommits }: Run<Params, Result>,
    changeSets: readonly ChangeSet[],
    { result, reads }: { readonly result: Result; readonly reads: ReadContext },
  ): Promise<PersistOutcome> {
    const shards = changeSets.map(({ shard }) => shard);
    try {
      const outcome = await this.#commits.commit(changeSets, configuration, reads);
      if (outcome === 'written') this.#tellCommitted(shards);
      return outcome;
    } catch (error) {
      if (error instanceof PartialCommitError) this.#tellCommitted(error.committed);
      unknownCommits.add(error, { result, shards });
      throw error;
    }
  }

  /**
   * What was committed under the key by an execution that had an effect: there may be nothing to do because of that, and no
   * index of the shard where the action is recorded shows it.
   */
  async #earlierEffect<Params, Result>(
    run: Run<Params, Result>,
    { scope }: KeyedRequest<Result>,
    reads: ReadContext,
  ): Promise<StoredKey | undefined> {
    const recordShard = this.#recordShard(run);
    const others = new Set([...run.shards].filter((shard) => shard !== recordShard));
    await reads.untilWritten();
    const stored = await this.#keySearch.onShards(scope, others);
    return stored ?? (isSearched(run.configuration) ? undefined : this.#keySearch.everywhere(scope));
  }

  /**
   * What was recorded under the key when there was nothing to do yet: on the shard accessed first, or where an attempt is
   * recorded that accesses none. No index of the shard of the effect shows it.
   */
  async #earlierNothing<Params, Result>(
    { params, shards: [first], configuration }: Run<Params, Result>,
    { scope }: KeyedRequest<Result>,
    effectShard: ShardIdentifier,
  ): Promise<StoredKey | undefined> {
    const unread = this.#recordShardUnread(params);
    if (first !== undefined && first !== effectShard) {
      const stored = await this.#keySearch.onShards(scope, new Set([first]));
      if (stored !== undefined) return stored;
    }
    if (isSearched(configuration) || unread === first || unread === effectShard) return undefined;
    return this.#keySearch.onShardIfItAnswers(scope, unread);
  }

  /** Commits the one change set with its key; when the key is taken, gives what was committed under it. */
  async #commitKeyed<Params, Result>(
    run: Run<Params, Result>,
    request: KeyedRequest<Result>,
    changeSets: readonly ChangeSet[],
    { result, reads }: { readonly result: Result; readonly reads: ReadContext },
  ): Promise<Result> {
    const { record, configuration } = run;
    const key = request.record(result, this.#keyLifetimeMs);
    boundedJson(`result of ${record.name}`, key.result ?? '', this.#limits);
    const keyed = changeSets.map((changes) => ({ ...changes, key }));
    const outcome = await this.#commit(run, keyed, { result, reads });
    const shard = keyed[0]?.shard ?? this.#databases.defaultShard;
    if (outcome === 'key-taken') {
      const stored = await request.taken(this.#databases.transactionManager(shard));
      return replay(request, stored, configuration);
    }
    this.#keySweep.countCommit(shard);
    return result;
  }

  #tellCommitted(shards: readonly ShardIdentifier[]): void {
    for (const shard of shards) for (const listener of this.#commitListeners) tell(listener, shard);
  }

  /**
   * An action that stages nothing is recorded on the shard to which perform has turned first: that follows from the params,
   * so that a repeat turns there as well and finds its idempotency key. When it has read nothing, on the first shard that its
   * params name; on the default shard when they name none.
   */
  #changeSets<Params, Result>(
    staged: readonly ShardPlan[],
    run: Run<Params, Result>,
    reads: ReadContext,
  ): readonly ChangeSet[] {
    const { record: action, unknownCommits } = run;
    const plans = staged.length === 0 ? [{ shard: this.#recordShard(run), changes: [], events: [] }] : staged;
    return plans.map((plan) => ({
      ...plan,
      action,
      timeline: reads.timelineOf(this.#databases.transactionManager(plan.shard)),
      unknownCommits: unknownCommits.on(plan.shard),
    }));
  }

  #recordShard<Params, Result>({ params, shards: [first] }: Run<Params, Result>): ShardIdentifier {
    return first ?? this.#recordShardUnread(params);
  }

  /** Where an action is recorded that has neither staged nor read anything. */
  #recordShardUnread(params: unknown): ShardIdentifier {
    const named = namedShards(params);
    const { defaultShard, shards } = this.#databases;
    return shards.find((shard) => named.has(shard)) ?? defaultShard;
  }
}

/**
 * What a listener throws, at once or later, cannot undo the commit, nor may it keep the other listeners from being called or
 * end the process.
 */
function tell(listener: (shard: ShardIdentifier) => unknown, shard: ShardIdentifier): void {
  new Promise((resolve) => resolve(listener(shard))).catch((cause: unknown) => {
    const warning = new Error('A listener of commits has failed', { cause });
    process.emitWarning(Object.assign(warning, { name: 'FrameworkWarning' }));
  });
}

/** Performs the action and seals its plan, also when it throws. */
async function performed<Params, Result>(
  { registered, principal, params, shards }: Run<Params, Result>,
  plan: Plan,
  reads: ReadContext,
): Promise<{ readonly result: Result; readonly staged: readonly ShardPlan[] }> {
  try {
    const { action, name } = registered;
    const execution = { actionName: name, plan, reads, shards };
    const result = await runInAttempt(execution, () => perform(action, principal, copyOfParams(params)));
    return { result, staged: sealPlan(plan) };
  } finally {
    sealPlan(plan);
    reads.end();
  }
}

function byModel(repositories: readonly ModelMapper[]): ReadonlyMap<unknown, ModelMapper> {
  const map = new Map<unknown, ModelMapper>();
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

/** What the attempts of one executor have in common: combined reads, locks on models, and the groups in which they commit. */
class AttemptCommits {
  readonly #databases: DatabaseRegistry;
  readonly #isGroupedByDefault: boolean;
  readonly #reads: CombinedReads;
  readonly #mutex: KeyedMutex | undefined;
  readonly #groups: GroupCommit;

  /** @throws ConfigurationError `invalid-configuration` when a setting is out of its range */
  constructor(
    databases: DatabaseRegistry,
    clock: Clock,
    {
      groupCommit = false,
      modelLocks = true,
    }: {
      readonly groupCommit?: boolean | Partial<GroupSettings>;
      readonly modelLocks?: boolean | Partial<ModelLockSettings>;
    },
  ) {
    this.#databases = databases;
    this.#reads = new CombinedReads(clock);
    this.#isGroupedByDefault = groupCommit !== false;
    const groupSettings = switched('groupCommit', defaultGroupSettings, groupRanges, groupCommit);
    this.#groups = new GroupCommit(databases, groupSettings, clock);
    const lockSettings = switched('modelLocks', defaultModelLockSettings, modelLockRanges, modelLocks);
    if (modelLocks !== false) this.#mutex = new KeyedMutex(lockSettings, clock);
  }

  /**
   * What a new attempt reads through; its locks are to be released.
   *
   * @param mayDepend whether it may depend on what is not committed yet, where the execution commits in groups
   */
  openReads(
    { groupCommit: isGrouped = this.#isGroupedByDefault, handledEvent }: ExecutionConfiguration,
    mayDepend: boolean,
  ): ReadContext {
    return new ReadContext(this.#reads, this.#mutex, this.#groups, {
      mayDepend: isGrouped && mayDepend,
      isOfHandler: handledEvent !== undefined,
    });
  }

  /** Commits in a group where the execution may and the plan can be in one, else as {@link commit}. */
  async commit(
    changeSets: readonly ChangeSet[],
    { groupCommit: isGrouped = this.#isGroupedByDefault }: ExecutionConfiguration,
    reads: ReadContext,
  ): Promise<PersistOutcome> {
    const [first] = changeSets;
    if (isGrouped && first !== undefined && this.#groups.takes(changeSets))
      return this.#groups.commit(first, reads.handOver(), () => reads.releaseLocks());
    await reads.untilWritten();
    return commit(changeSets, this.#databases, { onLockedOut: () => reads.holdUpLocks() });
  }
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
