import { PartialCommitError } from '../errors/configuration-errors.js';
import { FrameworkError } from '../errors/framework-error.js';
import { type CommitOutcomeUnknownError, StaleRecordError } from '../errors/storage-errors.js';
import type { GroupCommit } from '../group-commit/group-commit.js';
import type { ReadContext } from '../reads/read-context.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import { type ChangeSet, updateOfOtherTimeline } from '../storage/change-set.js';
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
 *     change sets ──▶ in a group with those of other executions, where it is one that a group can hold
 *                └──▶ else one transaction per shard, in order, once all that the attempt has read is written
 *                         └──▶ the answer is lost ──▶ the log is asked ──▶ written, or not, or unknown
 *
 * @param isGrouped whether its execution may commit in a group
 * @returns `key-taken` when the idempotency key of the one change set is there already, `written-before` when one of its
 * unknown commits has happened; nothing written
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
 * Before the first one is written, all shards are looked up, and what is known to be stale on one of them is refused.
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
  // What is known to be stale must be so before another shard is written: after a partial commit, nothing runs again.
  for (const { changes, manager } of commits.length > 1 ? commits : []) {
    const stale = updateOfOtherTimeline(changes, manager.timeline);
    if (stale !== undefined) throw StaleRecordError.of(stale);
  }
  const committed: ShardIdentifier[] = [];
  for (const { changes, manager } of commits) {
    try {
      const outcome = await commitOne(changes, manager, options);
      if (changeSets.length === 1) return outcome;
      // The other shards would get what belongs to a later attempt than what is written here.
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

/** Commits on one shard; when the answer is lost, asks the log instead of guessing. */
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

/** Why the other shards are not written when an earlier attempt turns out to be committed on one of several. */
class WrittenBeforeError extends Error {
  override readonly name = 'WrittenBeforeError';
}

/** How many causes of an error are looked at. */
const depthMax = 8;

/** An attempt whose commit got no answer. */
interface LostAttempt<Result> {
  readonly unknown: CommitOutcomeUnknownError;
  readonly result: Result;
  /** Of its whole plan, of which nothing was sent to the others. */
  readonly shards: readonly ShardIdentifier[];
  /** Whether the log has said that it did not happen. */
  isRuledOut: boolean;
}

/**
 * The commits of one execution whose outcome was not known, each with the result of its attempt.
 *
 * No further attempt is made before the log has ruled them out. It carries them all the same, so that the database itself
 * refuses a second effect; and if one of them did happen, the caller gets the result that belongs to it.
 */
export class UnknownCommits<Result> {
  readonly #actionId: string;
  readonly #attempts: LostAttempt<Result>[] = [];

  /** @param actionId the action of the execution, which is the same in all its attempts */
  constructor(actionId: string) {
    this.#actionId = actionId;
  }

  /**
   * Keeps an attempt if its error says, or was caused by one that said, that its outcome is not known; not where the outcome
   * of another action is not known, on which it was built.
   */
  add(error: unknown, attempt: Pick<LostAttempt<Result>, 'result' | 'shards'>): void {
    const unknown = unknownCommitOf(error);
    if (unknown?.actionId !== this.#actionId) return;
    this.#attempts.push({
      ...attempt,
      unknown,
      isRuledOut: !isOutcomeUnknown(FrameworkError.find(error)),
    });
  }

  /** Those that were sent to a shard; `undefined` when there are none. */
  on(shard: ShardIdentifier): readonly CommitOutcomeUnknownError[] | undefined {
    const own = this.#attempts.map(({ unknown }) => unknown).filter((unknown) => unknown.shard === shard);
    return own.length === 0 ? undefined : own;
  }

  /**
   * Asks the log which of them happened.
   *
   * @param asked `open` for those only that the log has not ruled out yet
   * @param onHappened called with the shard of the one that did
   * @returns the result of that attempt; `undefined` when none did
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when that cannot be learnt
   * @throws PartialCommitError `partial-commit` when its plan was to be written on further shards
   */
  async happened(
    databases: DatabaseRegistry,
    asked: 'all' | 'open',
    onHappened: (shard: ShardIdentifier) => void,
  ): Promise<{ readonly result: Result } | undefined> {
    for (const attempt of this.#attempts) {
      if (asked === 'open' && attempt.isRuledOut) continue;
      const { unknown, result } = attempt;
      if (await hasHappened(unknown, databases.transactionManager(unknown.shard))) {
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

/** The lost answer to a commit in a chain of causes; by code, because an adapter may bring its own copy of this package. */
function unknownCommitOf(error: unknown): CommitOutcomeUnknownError | undefined {
  let link = error;
  for (let depth = 0; depth < depthMax && link instanceof Error; depth++) {
    if (isOutcomeUnknown(link)) return link;
    link = link.cause;
  }
  return undefined;
}

/** Who is told of each commit. */
export class CommitListeners {
  readonly #listeners = new Set<(shard: ShardIdentifier) => unknown>();

  /** @returns what ends it */
  add(listener: (shard: ShardIdentifier) => unknown): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Tells all of them of a commit on each of these shards. */
  tell(...shards: readonly ShardIdentifier[]): void {
    for (const shard of shards) for (const listener of this.#listeners) callSafely(listener, shard);
  }
}

/**
 * What a listener throws, at once or later, cannot undo the commit, nor may it keep the other listeners from being called or
 * end the process.
 */
function callSafely(listener: (shard: ShardIdentifier) => unknown, shard: ShardIdentifier): void {
  new Promise((resolve) => resolve(listener(shard))).catch((cause: unknown) => {
    const warning = new Error('A listener of commits has failed', { cause });
    process.emitWarning(Object.assign(warning, { name: 'FrameworkWarning' }));
  });
}
