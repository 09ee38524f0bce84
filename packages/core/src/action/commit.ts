import { PartialCommitError } from '../config/configuration-errors.js';
import { FrameworkError } from '../errors/framework-error.js';
import type { GroupCommit } from '../group-commit/group-commit.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { PlanIdentity } from '../model/provenance.js';
import { callSafely } from '../observer.js';
import type { ReadContext } from '../reads/read-context.js';
import { type ChangeSet, updateOfOtherTimeline } from '../storage/change-set.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import { type CommitOutcomeUnknownError, StaleRecordError } from '../storage/storage-errors.js';
import {
  type PersistOptions,
  type PersistOutcome,
  type TransactionManager,
  hasHappened,
  isOutcomeUnknown,
  outcomeOf,
} from '../storage/transaction-manager.js';

/**
 * Commits what an attempt staged:
 *
 *     change sets ──▶ in a group with those of other executions, if it is one change set that a group can hold
 *          │
 *          └───────▶ otherwise in one transaction per shard, in order, once everything that the attempt has read is committed
 *                         └──▶ if an answer is lost, the log is asked ──▶ written, not written, or unknown
 *
 * @param isGrouped whether its execution may commit in a group
 * @returns `key-taken` when the idempotency key of the one change set exists already, `written-before` when one of its unknown
 * commits has happened; in both cases nothing was written
 * @throws as {@link commitEach}, and as {@link GroupCommit.commit}
 */
export async function commit(
  changeSets: readonly ChangeSet[],
  { databases, groups }: { readonly databases: DatabaseRegistry; readonly groups: GroupCommit },
  reads: ReadContext,
  isGrouped: boolean,
): Promise<PersistOutcome> {
  const [first] = changeSets;
  if (isGrouped && first !== undefined && groups.takes(changeSets))
    return groups.commit(first, reads.handOver(), () => reads.releaseLocks());
  await reads.untilWritten();
  return commitEach(changeSets, databases, { onLockedOut: () => reads.holdUpLocks() });
}

/**
 * Commits change sets, one transaction per shard, in the order given.
 *
 * If there are several shards, it first checks that all of them are usable, and that nothing is known to be stale on one of them.
 *
 * @throws PartialCommitError `partial-commit` when a later shard fails after an earlier one committed
 * @throws UnknownShardError `unknown-shard`, and what {@link TransactionManager.persist} throws: nothing written
 */
async function commitEach(
  changeSets: readonly ChangeSet[],
  databases: DatabaseRegistry,
  options: PersistOptions,
): Promise<PersistOutcome> {
  const commits = changeSets.map((changes) => ({
    changes,
    manager: databases.transactionManager(changes.shard),
  }));
  // Whatever can be found out in advance is checked before any shard is written: after a partial commit there is no other attempt.
  if (commits.length > 1) {
    await Promise.all(changeSets.map(({ shard }) => databases.assertUsable(shard)));
    for (const { changes, manager } of commits) {
      const stale = updateOfOtherTimeline(changes, manager.timeline);
      if (stale !== undefined) throw StaleRecordError.of(stale);
    }
  }
  const committed: ShardIdentifier[] = [];
  for (const { changes, manager } of commits) {
    try {
      const outcome = await commitOne(changes, manager, options);
      if (changeSets.length === 1) return outcome;
      // This shard holds an earlier attempt: the other shards must not get the changes of this one.
      if (outcome === 'written-before')
        throw new WrittenBeforeError(`${changes.shard} holds an earlier attempt`);
    } catch (error) {
      if (error instanceof WrittenBeforeError) committed.push(changes.shard);
      if (committed.length === 0) throw error;
      const unknown = isOutcomeUnknown(error) ? changes.shard : undefined;
      const failed = changeSets
        .slice(committed.length)
        .map(({ shard }) => shard)
        .filter((shard) => shard !== unknown);
      throw new PartialCommitError(changes.action.id, { committed, failed, unknown }, { cause: error });
    }
    committed.push(changes.shard);
  }
  return 'written';
}

/** Commits on one shard. If the answer is lost, asks the log. */
async function commitOne(
  changes: ChangeSet,
  manager: TransactionManager,
  options: PersistOptions,
): Promise<PersistOutcome> {
  try {
    return await manager.persist(changes, options);
  } catch (error) {
    return outcomeOf(error, manager);
  }
}

/** The cause of a partial commit when an earlier attempt turns out to be committed on one of several shards. */
class WrittenBeforeError extends Error {
  override readonly name = 'WrittenBeforeError';
}

/** How many causes of an error are looked at. */
const depthMax = 8;

/** An attempt whose commit got no answer. */
interface LostAttempt<Result> {
  readonly unknown: CommitOutcomeUnknownError;
  readonly result: Result;
  /** By shard: what identifies the plan to the models that are staged on it. */
  readonly identities: ReadonlyMap<ShardIdentifier, PlanIdentity>;
  /** All shards of its plan. The commit was sent only to the one that did not answer. */
  readonly shards: readonly ShardIdentifier[];
  /** Whether the log has said that it did not happen. */
  isRuledOut: boolean;
}

/**
 * The commits of one execution whose outcome was not known, each with the result of its attempt.
 *
 * The next attempt begins only when the log has ruled them out. It still carries them, so that the database itself refuses a
 * second effect. If one of them did happen, the caller gets its result.
 */
export class UnknownCommits<Result> {
  readonly #actionId: string;
  readonly #attempts: LostAttempt<Result>[] = [];

  /** @param actionId the action of the execution, which is the same in all its attempts */
  constructor(actionId: string) {
    this.#actionId = actionId;
  }

  /**
   * Keeps an attempt if its error, or a cause of it, says that its outcome is not known. The unknown outcome of another action on
   * which the attempt depends does not count.
   */
  add(error: unknown, attempt: Pick<LostAttempt<Result>, 'result' | 'identities' | 'shards'>): void {
    const unknown = unknownCommitOf(error);
    if (unknown?.actionId !== this.#actionId) return;
    this.#attempts.push({
      ...attempt,
      unknown,
      isRuledOut: !isOutcomeUnknown(FrameworkError.find(error)),
    });
  }

  /** The unknown commits that were sent to a shard; `undefined` when there are none. */
  on(shard: ShardIdentifier): readonly CommitOutcomeUnknownError[] | undefined {
    const own = this.#attempts.map(({ unknown }) => unknown).filter((unknown) => unknown.shard === shard);
    return own.length === 0 ? undefined : own;
  }

  /**
   * Asks the log whether one of the unknown commits has happened.
   *
   * @param asked `open` asks only for those that the log has not ruled out yet
   * @param onHappened called with the shard of the one that has
   * @returns the result of its attempt; `undefined` when none has happened
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when that cannot be found out
   * @throws PartialCommitError `partial-commit` when its plan was to be written on further shards
   */
  async happened(
    databases: DatabaseRegistry,
    asked: 'all' | 'open',
    onHappened: (shard: ShardIdentifier) => void,
  ): Promise<{ readonly result: Result } | undefined> {
    for (const attempt of this.#attempts) {
      if (asked === 'open' && attempt.isRuledOut) continue;
      const { unknown, result, identities } = attempt;
      if (await hasHappened(unknown, databases.transactionManager(unknown.shard))) {
        const identity = identities.get(unknown.shard);
        if (identity !== undefined) identity.isCommitted = true;
        onHappened(unknown.shard);
        assertWhole(this.#actionId, attempt);
        return { result };
      }
      attempt.isRuledOut = true;
    }
    return undefined;
  }
}

function assertWhole(actionId: string, { unknown, shards }: LostAttempt<unknown>): void {
  const failed = shards.filter((shard) => shard !== unknown.shard);
  if (failed.length === 0) return;
  const parts = { committed: [unknown.shard], failed, unknown: undefined };
  throw new PartialCommitError(actionId, parts, { cause: unknown });
}

/**
 * The error in a chain of causes that says that the answer to a commit was lost. It is recognised by its code, because an adapter
 * may contain its own copy of this package.
 */
function unknownCommitOf(error: unknown): CommitOutcomeUnknownError | undefined {
  let link = error;
  for (let depth = 0; depth < depthMax && link instanceof Error; depth++) {
    if (isOutcomeUnknown(link)) return link;
    link = link.cause;
  }
  return undefined;
}

/** The listeners that are called after each commit. */
export class CommitListeners {
  readonly #listeners = new Set<(shard: ShardIdentifier) => unknown>();

  /** Adds a listener, and returns a function that removes it. */
  add(listener: (shard: ShardIdentifier) => unknown): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Calls all listeners with each of these shards. */
  tell(...shards: readonly ShardIdentifier[]): void {
    const message = 'A commit listener has failed; the commit itself has succeeded';
    for (const shard of shards)
      for (const listener of this.#listeners) callSafely(() => listener(shard), message);
  }
}
