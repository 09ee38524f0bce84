import type { Clock } from '../clock.js';
import type { ExecutionLimits } from '../config/settings.js';
import { CrossShardError, PartialCommitError } from '../errors/configuration-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import type { GroupCommit } from '../group-commit/group-commit.js';
import type { KeySweep } from '../idempotency/key-cleanup.js';
import { type KeySearch, namedShards } from '../idempotency/key-search.js';
import type { KeyedRequest } from '../idempotency/keyed-request.js';
import type { EventTypes } from '../model/model-event.js';
import type { KeyedMutex } from '../reads/keyed-mutex.js';
import type { CombinedReads } from '../reads/read-batcher.js';
import { ReadContext } from '../reads/read-context.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ActionRecord, ChangeSet } from '../storage/change-set.js';
import type { StoredKey } from '../storage/idempotency-keys.js';
import type { Repository } from '../storage/repository.js';
import type { PersistOutcome } from '../storage/transaction-manager.js';
import type { RegisteredAction } from './action-registry.js';
import { type Principal, perform } from './action.js';
import { runInAttempt } from './attempt-context.js';
import { type CommitListeners, type UnknownCommits, commit } from './commit.js';
import type { ExecutionConfiguration } from './options.js';
import { boundedJson, copyOfParams } from './params.js';
import { Plan, type ShardPlan, sealPlan } from './plan.js';
import type { RetryPolicy } from './retry-policy.js';

/** What all executions of one executor share. */
export interface ExecutorContext {
  readonly databases: DatabaseRegistry;
  readonly repositories: ReadonlyMap<unknown, Repository>;
  /** The classes of events that were staged, and those that handlers have claimed. */
  readonly eventTypes: EventTypes;
  readonly limits: ExecutionLimits;
  readonly retry: RetryPolicy;
  readonly clock: Clock;
  readonly random: () => number;
  readonly keyLifetimeMs: number;
  readonly keySearch: KeySearch;
  readonly keySweep: KeySweep;
  readonly combinedReads: CombinedReads;
  /** `undefined` when executions do not wait for each other. */
  readonly mutex: KeyedMutex | undefined;
  readonly groups: GroupCommit;
  /** Whether plans are committed in groups, unless their execution says otherwise. */
  readonly isGrouped: boolean;
  readonly listeners: CommitListeners;
}

/** What the attempts of one execution have in common. */
export interface ExecutionState<Params, Result> {
  readonly registered: RegisteredAction<Params, Result>;
  readonly principal: Principal;
  /** Seen by nobody but a copy of them by each attempt. */
  readonly params: Params;
  readonly record: ActionRecord;
  readonly configuration: ExecutionConfiguration;
  /** Under which it is to be committed, if any. */
  readonly request: KeyedRequest<Result> | undefined;
  /** The shards that the attempts have accessed so far, for reads of any kind. */
  readonly shards: Set<ShardIdentifier>;
  /** Of the attempts so far. */
  readonly unknownCommits: UnknownCommits<Result>;
}

/** One attempt of an execution: performs the action and commits what it staged. */
export class Attempt<Params, Result> {
  readonly #executor: ExecutorContext;
  readonly #execution: ExecutionState<Params, Result>;
  readonly #isGrouped: boolean;
  readonly #reads: ReadContext;

  /** @param mayDepend whether it may depend on what is not committed yet, where the execution commits in groups */
  constructor(executor: ExecutorContext, execution: ExecutionState<Params, Result>, mayDepend: boolean) {
    const { groupCommit = executor.isGrouped, handledEvent } = execution.configuration;
    this.#executor = executor;
    this.#execution = execution;
    this.#isGrouped = groupCommit;
    this.#reads = new ReadContext(executor.combinedReads, executor.mutex, executor.groups, {
      mayDepend: groupCommit && mayDepend,
      isOfHandler: handledEvent !== undefined,
    });
  }

  /** Makes it, once it is certain that none before is committed; throws what perform throws, and what the commit does. */
  async make(): Promise<Result> {
    const earlier = await earlierAttempt(this.#executor, this.#execution, 'open');
    if (earlier !== undefined) return earlier.result;
    try {
      return await this.#performAndCommit();
    } catch (error) {
      this.#reads.releaseLocks();
      // A refusal because of a model that is not committed yet holds only if that is committed. A commit checks that
      // itself.
      await this.#reads.untilWritten();
      throw error;
    } finally {
      this.#reads.releaseLocks();
    }
  }

  async #performAndCommit(): Promise<Result> {
    const { record, configuration, request } = this.#execution;
    const { result, staged } = await this.#perform();
    this.#reads.keepLocksOf(staged);
    if (staged.length > 1 && configuration.allowCrossShard !== true) {
      throw new CrossShardError(
        record.name,
        staged.map(({ shard }) => shard),
      );
    }
    const changeSets = this.#changeSets(staged);
    if (request !== undefined) {
      const [only] = staged;
      const earlier =
        only === undefined
          ? await this.#earlierEffect(request)
          : await this.#earlierNothing(request, only.shard);
      if (earlier !== undefined) return replay(request, earlier, configuration);
      return this.#commitKeyed(request, changeSets, result);
    }
    const outcome = await this.#commit(changeSets, result);
    if (outcome !== 'written-before') return result;
    const earlier = await earlierAttempt(this.#executor, this.#execution, 'all');
    if (earlier === undefined)
      throw new InvariantViolationError(`${record.name} is committed, but none of its attempts`);
    return earlier.result;
  }

  /** Performs the action and seals its plan, also when it throws. */
  async #perform(): Promise<{ readonly result: Result; readonly staged: readonly ShardPlan[] }> {
    const { repositories, limits, clock, eventTypes } = this.#executor;
    const { registered, principal, params, shards } = this.#execution;
    const { action, name: actionName } = registered;
    const plan = new Plan({ actionName, repositories, limits, clock, eventTypes });
    try {
      const context = { actionName, plan, reads: this.#reads, shards };
      const result = await runInAttempt(context, () => perform(action, principal, copyOfParams(params)));
      return { result, staged: sealPlan(plan) };
    } finally {
      sealPlan(plan);
      this.#reads.end();
    }
  }

  /** Commits what was staged, unless an earlier attempt turns out to be committed. */
  async #commit(changeSets: readonly ChangeSet[], result: Result): Promise<PersistOutcome> {
    const { listeners } = this.#executor;
    const shards = changeSets.map(({ shard }) => shard);
    try {
      const outcome = await this.#persist(changeSets);
      if (outcome === 'written') listeners.tell(shards);
      return outcome;
    } catch (error) {
      if (error instanceof PartialCommitError) listeners.tell(error.committed);
      this.#execution.unknownCommits.add(error, { result, shards });
      throw error;
    }
  }

  /** Commits in a group where the execution may and the plan can be in one, else as {@link commit}. */
  async #persist(changeSets: readonly ChangeSet[]): Promise<PersistOutcome> {
    const { databases, groups } = this.#executor;
    const reads = this.#reads;
    const [first] = changeSets;
    if (this.#isGrouped && first !== undefined && groups.takes(changeSets))
      return groups.commit(first, reads.handOver(), () => reads.releaseLocks());
    await reads.untilWritten();
    return commit(changeSets, databases, { onLockedOut: () => reads.holdUpLocks() });
  }

  /** Commits the one change set with its key; when the key is taken, gives what was committed under it. */
  async #commitKeyed(
    request: KeyedRequest<Result>,
    changeSets: readonly ChangeSet[],
    result: Result,
  ): Promise<Result> {
    const { databases, keyLifetimeMs, keySweep, limits } = this.#executor;
    const { record, configuration } = this.#execution;
    const key = request.record(result, keyLifetimeMs);
    boundedJson(`result of ${record.name}`, key.result ?? '', limits);
    const keyed = changeSets.map((changes) => ({ ...changes, key }));
    const outcome = await this.#commit(keyed, result);
    const shard = keyed[0]?.shard ?? databases.defaultShard;
    if (outcome === 'key-taken') {
      const stored = await request.taken(databases.transactionManager(shard));
      return replay(request, stored, configuration);
    }
    keySweep.countCommit(shard);
    return result;
  }

  /**
   * What was committed under the key by an execution that had an effect: there may be nothing to do because of that, and no
   * index of the shard where the action is recorded shows it.
   */
  async #earlierEffect({ scope }: KeyedRequest<Result>): Promise<StoredKey | undefined> {
    const { keySearch } = this.#executor;
    const { shards, configuration } = this.#execution;
    const recordShard = this.#recordShard();
    const others = new Set([...shards].filter((shard) => shard !== recordShard));
    await this.#reads.untilWritten();
    const stored = await keySearch.onShards(scope, others);
    return stored ?? (isSearched(configuration) ? undefined : keySearch.everywhere(scope));
  }

  /**
   * What was recorded under the key when there was nothing to do yet: on the shard accessed first, or where an attempt is
   * recorded that accesses none. No index of the shard of the effect shows it.
   */
  async #earlierNothing(
    { scope }: KeyedRequest<Result>,
    effectShard: ShardIdentifier,
  ): Promise<StoredKey | undefined> {
    const { keySearch } = this.#executor;
    const {
      shards: [first],
      configuration,
    } = this.#execution;
    const unread = this.#recordShardUnread();
    if (first !== undefined && first !== effectShard) {
      const stored = await keySearch.onShards(scope, new Set([first]));
      if (stored !== undefined) return stored;
    }
    if (isSearched(configuration) || unread === first || unread === effectShard) return undefined;
    return keySearch.onShardIfItAnswers(scope, unread);
  }

  /**
   * An action that stages nothing is recorded on the shard to which perform has turned first: that follows from the params,
   * so that a repeat turns there as well and finds its idempotency key. When it has read nothing, on the first shard that its
   * params name; on the default shard when they name none.
   */
  #changeSets(staged: readonly ShardPlan[]): readonly ChangeSet[] {
    const { databases } = this.#executor;
    const { record: action, unknownCommits } = this.#execution;
    const plans = staged.length === 0 ? [{ shard: this.#recordShard(), changes: [], events: [] }] : staged;
    return plans.map((plan) => ({
      ...plan,
      action,
      timeline: this.#reads.timelineOf(databases.transactionManager(plan.shard)),
      unknownCommits: unknownCommits.on(plan.shard),
    }));
  }

  #recordShard(): ShardIdentifier {
    const [first] = this.#execution.shards;
    return first ?? this.#recordShardUnread();
  }

  /** Where an action is recorded that has neither staged nor read anything. */
  #recordShardUnread(): ShardIdentifier {
    const named = namedShards(this.#execution.params);
    const { defaultShard, shards } = this.#executor.databases;
    return shards.find((shard) => named.has(shard)) ?? defaultShard;
  }
}

/**
 * The result of an attempt whose outcome was not known, when it was committed.
 *
 * @param asked `open` for attempts only that the log has not ruled out yet
 */
export async function earlierAttempt<Result>(
  { databases, listeners }: Pick<ExecutorContext, 'databases' | 'listeners'>,
  { unknownCommits }: { readonly unknownCommits: UnknownCommits<Result> },
  asked: 'all' | 'open',
): Promise<{ readonly result: Result } | undefined> {
  return unknownCommits.happened(databases, asked, (shard) => listeners.tell([shard]));
}

/** Whether every database is asked for the key before the action is performed. */
export function isSearched({ searchKeyOnAllDatabases = true }: ExecutionConfiguration): boolean {
  return searchKeyOnAllDatabases;
}

/** Gives the result of the request that was committed under the key. */
export function replay<Result>(
  request: KeyedRequest<Result>,
  stored: StoredKey,
  { onReplayed }: ExecutionConfiguration,
): Result {
  const result = request.replay(stored);
  onReplayed?.();
  return result;
}
