import type { Clock } from '../clock.js';
import { CrossShardException, PartialCommitError } from '../config/configuration-errors.js';
import type { ExecutionLimits, RetryPolicy } from '../config/settings.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import type { GroupCommit } from '../group-commit/group-commit.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { KeySweep } from '../idempotency/key-cleanup.js';
import { type KeySearch, namedShards } from '../idempotency/key-search.js';
import type { KeyedRequest } from '../idempotency/keyed-request.js';
import type { EventTypes } from '../model/model-event.js';
import type { AnyEntity } from '../model/model.js';
import { type PlanIdentity, readOf, setRead } from '../model/provenance.js';
import type { Observe } from '../observer.js';
import type { KeyedMutex } from '../reads/keyed-mutex.js';
import type { CombinedReads } from '../reads/read-batcher.js';
import { ReadContext } from '../reads/read-context.js';
import type { ActionRecord, ChangeSet } from '../storage/change-set.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import type { HandledEvent, StoredKey } from '../storage/idempotency-keys.js';
import type { ModelMapper } from '../storage/repository.js';
import { type AttemptContext, type PersistOutcome, runInAttempt } from '../storage/transaction-manager.js';
import { boundedJson } from './action-recorder.js';
import type { RegisteredAction } from './action-registry.js';
import { type ActionPolicy, type Principal, perform } from './action.js';
import { type CommitListeners, type UnknownCommits, commit } from './commit.js';
import { Plan, type ShardPlan, sealPlan } from './plan.js';

/** What all executions of one executor share: the databases, their settings, and what combines or orders their work. */
export interface ExecutionEnvironment {
  readonly databases: DatabaseRegistry;
  /** By the class of the models that they store. */
  readonly repositories: ReadonlyMap<unknown, ModelMapper>;
  /** The classes of events that were staged, and those that handlers have claimed. */
  readonly eventTypes: EventTypes;
  readonly limits: ExecutionLimits;
  readonly retry: RetryPolicy;
  readonly keyLifetimeMs: number;
  readonly keySearch: KeySearch;
  readonly keySweep: KeySweep;
  readonly combinedReads: CombinedReads;
  /** The locks on models; `undefined` when executions do not wait for each other. */
  readonly mutex: KeyedMutex | undefined;
  readonly groups: GroupCommit;
  /** Whether plans are committed in groups, unless their execution says otherwise. */
  readonly isGrouped: boolean;
  readonly listeners: CommitListeners;
  readonly observe: Observe;
  readonly clock: Clock;
  readonly random: () => number;
}

/** What an attempt knows about its execution. */
export interface AttemptedExecution<Params, Result> {
  readonly registered: RegisteredAction<Params, Result>;
  readonly principal: Principal;
  /** The recorded params, as a new value for each call. */
  readonly newParams: () => Params;
  readonly record: ActionRecord;
  readonly configuration: {
    readonly allowCrossShard?: boolean;
    readonly groupCommit?: boolean;
    readonly handledEvent?: HandledEvent;
  };
  /** Set when it has an idempotency key. */
  readonly request: KeyedRequest<Result> | undefined;
  /** The shards that its attempts have accessed so far, for reads of any kind. */
  readonly shards: Set<ShardIdentifier>;
  /** The commits of its attempts so far whose outcome was not known. */
  readonly unknownCommits: UnknownCommits<Result>;
  /**
   * Returns the result of an earlier attempt whose outcome was not known, if it turns out to be committed.
   *
   * @param asked `open` asks only for attempts that the log has not ruled out yet
   */
  earlierResult(asked: 'all' | 'open'): Promise<{ readonly result: Result } | undefined>;
}

/**
 * One attempt of an execution:
 *
 *     policy ──▶ perform ──▶ seal the plan ──▶ make change sets ──▶ with a key: was it committed before? ──▶ commit
 *        └──────────┴─ each read takes the lock on its model
 *
 * Locks on models that the plan does not change are released when it is sealed; the others when the commit has ended, or is
 * queued in a group.
 */
export class Attempt<Params, Result> implements AttemptContext {
  readonly actionName: string;
  readonly plan: Plan;
  readonly reads: ReadContext;
  readonly shards: Set<ShardIdentifier>;
  readonly #environment: ExecutionEnvironment;
  readonly #execution: AttemptedExecution<Params, Result>;
  readonly #isGrouped: boolean;

  readonly #number: number;
  /** By shard: what identifies the plan to the models that are staged on it. */
  readonly #identities = new Map<ShardIdentifier, PlanIdentity>();

  /**
   * @param options.number which attempt of the execution it is, from 1
   * @param options.mayDepend whether, with group commit, it may depend on models that are not committed yet
   */
  constructor(
    environment: ExecutionEnvironment,
    execution: AttemptedExecution<Params, Result>,
    { number, mayDepend }: { readonly number: number; readonly mayDepend: boolean },
  ) {
    const { record, configuration, shards } = execution;
    const { repositories, limits, clock, eventTypes, combinedReads, mutex, groups, observe } = environment;
    this.#environment = environment;
    this.#execution = execution;
    this.#isGrouped = configuration.groupCommit ?? environment.isGrouped;
    this.#number = number;
    this.actionName = record.name;
    this.shards = shards;
    this.plan = new Plan({ actionName: record.name, repositories, limits, clock, eventTypes });
    this.reads = new ReadContext(combinedReads, mutex, groups, {
      mayDepend: this.#isGrouped && mayDepend,
      isOfHandler: configuration.handledEvent !== undefined,
      observe,
    });
  }

  /** Performs and commits. Throws the errors of the policy, of `perform` and of the commit. */
  async make(): Promise<Result> {
    try {
      return await this.#performAndCommit();
    } catch (error) {
      this.reads.releaseLocks();
      // The policy or `perform` may have refused because of a model that is not committed yet. That refusal stands only if the
      // model is committed. A commit checks this itself.
      await this.reads.untilWritten();
      throw error;
    } finally {
      this.reads.releaseLocks();
    }
  }

  async #performAndCommit(): Promise<Result> {
    const { configuration, request } = this.#execution;
    const { observe } = this.#environment;
    const performing = { kind: 'perform', action: this.actionName, attempt: this.#number } as const;
    const { result, staged } = await observe(performing, () => this.#perform());
    this.reads.keepLocksOf(staged);
    for (const { shard, identity, bases } of staged) {
      this.#identities.set(shard, identity);
      this.#dependOn(shard, bases);
    }
    if (staged.length > 1 && configuration.allowCrossShard !== true) {
      throw new CrossShardException(
        this.actionName,
        staged.map(({ shard }) => shard),
      );
    }
    const changeSets = this.#changeSets(staged);
    if (request !== undefined) {
      const stored = await this.#storedUnder(request, staged);
      if (stored !== undefined) return request.replay(stored);
      return this.#commitKeyed(request, changeSets, result);
    }
    const outcome = await this.#commit(changeSets, result);
    if (outcome !== 'written-before') return result;
    const earlier = await this.#execution.earlierResult('all');
    if (earlier === undefined)
      throw new InvariantViolationError(
        `The database reports that an earlier attempt of ${this.actionName} was committed, but its log contains none`,
      );
    return earlier.result;
  }

  #dependOn(shard: ShardIdentifier, bases: readonly AnyEntity[]): void {
    if (bases.length === 0) return;
    const { databases } = this.#environment;
    const managers = [databases.transactionManager(shard), ...databases.managersBeside(shard)] as const;
    for (const base of bases) this.reads.dependOn(base, managers);
  }

  /** Asks the policy, performs the action, and seals its plan even when one of them throws. */
  async #perform(): Promise<{ readonly result: Result; readonly staged: readonly ShardPlan[] }> {
    const { registered, principal, newParams } = this.#execution;
    try {
      if (registered.policy !== undefined) await this.#authorize(registered.policy);
      const result = await runInAttempt(this, () => perform(registered.action, principal, newParams()));
      return { result, staged: sealPlan(this.plan, result) };
    } finally {
      sealPlan(this.plan);
      this.reads.end();
    }
  }

  /** Asks a policy where it finds the reads of this attempt, but no plan. */
  async #authorize(policy: ActionPolicy<Params>): Promise<void> {
    const { principal, newParams, configuration } = this.#execution;
    const plan = { sealed: false };
    const context = { actionName: this.actionName, plan, reads: this.reads.ofPolicy, shards: this.shards };
    const request = { principal, params: newParams(), handledEvent: configuration.handledEvent };
    try {
      const answer: unknown = await runInAttempt(context, async () => policy.authorize(request));
      if (answer === undefined) return;
      throw new InvariantViolationError(
        `The policy of ${this.actionName} returned a ${typeof answer}: it must return nothing to allow, and throw to refuse`,
      );
    } finally {
      plan.sealed = true;
    }
  }

  /**
   * An action that stages nothing is recorded on the shard that its policy or `perform` accessed first. That follows from the
   * principal and the params, so a repeat accesses the same shard and finds its idempotency key there. If it accessed none, it is
   * recorded on the first shard that its params name; if they name none, on the default shard.
   */
  #changeSets(staged: readonly ShardPlan[]): readonly ChangeSet[] {
    const { databases } = this.#environment;
    const { record: action, unknownCommits } = this.#execution;
    const plans = staged.length === 0 ? [{ shard: this.#recordShard(), changes: [], events: [] }] : staged;
    return plans.map(({ shard, changes, events }) => {
      const manager = databases.transactionManager(shard);
      const timeline = this.reads.timelineOf(manager);
      for (const { model } of changes) setRead(model, { ...readOf(model), manager, timeline });
      return { shard, changes, events, action, timeline, unknownCommits: unknownCommits.on(shard) };
    });
  }

  #recordShard(): ShardIdentifier {
    const [first] = this.shards;
    return first ?? this.#recordShardUnread();
  }

  /** The shard on which to record an action that has accessed none. */
  #recordShardUnread(): ShardIdentifier {
    const named = namedShards(this.#execution.newParams());
    const { defaultShard, shards } = this.#environment.databases;
    return shards.find((shard) => named.has(shard)) ?? defaultShard;
  }

  /**
   * What was committed with the key on shards other than the one to which this attempt writes. On that one, the unique index finds
   * it.
   */
  async #storedUnder(
    request: KeyedRequest<Result>,
    [only]: readonly ShardPlan[],
  ): Promise<StoredKey | undefined> {
    const { keySearch } = this.#environment;
    const [first] = this.shards;
    const unread = this.#recordShardUnread();
    if (only !== undefined) return keySearch.beforeEffect(request, { effect: only.shard, first, unread });
    await this.reads.untilWritten();
    return keySearch.beforeNoEffect(request, this.shards, first ?? unread);
  }

  /** Commits the only change set together with its key. If the key is taken, returns the result that was committed with it. */
  async #commitKeyed(
    request: KeyedRequest<Result>,
    changeSets: readonly ChangeSet[],
    result: Result,
  ): Promise<Result> {
    const { databases, keyLifetimeMs, keySweep, limits } = this.#environment;
    const key = request.record(result, keyLifetimeMs);
    boundedJson(`result of ${this.actionName}`, key.result ?? '', limits);
    const keyed = changeSets.map((changes) => ({ ...changes, key }));
    const outcome = await this.#commit(keyed, result);
    const shard = keyed[0]?.shard ?? databases.defaultShard;
    if (outcome === 'key-taken') {
      const stored = await request.taken(databases.transactionManager(shard));
      return request.replay(stored);
    }
    keySweep.countCommit(shard);
    return result;
  }

  /** Commits what was staged, unless an earlier attempt turns out to be committed; remembers a commit without an answer. */
  async #commit(changeSets: readonly ChangeSet[], result: Result): Promise<PersistOutcome> {
    const { observe } = this.#environment;
    const shards = changeSets.map(({ shard }) => shard);
    const eventCount = changeSets.reduce((count, { events }) => count + events.length, 0);
    try {
      const outcome = await observe({ kind: 'persist', action: this.actionName, shards, eventCount }, () =>
        commit(changeSets, this.#environment, this.reads, this.#isGrouped),
      );
      if (outcome === 'written') this.#committed(shards);
      return outcome;
    } catch (error) {
      if (error instanceof PartialCommitError) this.#committed(error.committed);
      this.#execution.unknownCommits.add(error, { result, shards, identities: this.#identities });
      throw error;
    }
  }

  /** Marks what was staged on these shards as committed, and notifies the listeners. */
  #committed(shards: readonly ShardIdentifier[]): void {
    for (const shard of shards) {
      const identity = this.#identities.get(shard);
      if (identity !== undefined) identity.isCommitted = true;
    }
    this.#environment.listeners.tell(...shards);
  }
}
