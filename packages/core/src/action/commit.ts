import { StaleRecordException, TransientStorageException } from '../errors/storage-exceptions.js';
import { PartialCommitException } from '../errors/sharding-exceptions.js';
import { type ChangeSet, updateOfOtherTimeline } from '../persistence/change-set.js';
import type {
  PersistOptions,
  PersistOutcome,
  TransactionManager,
} from '../persistence/transaction-manager.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import { hasHappened, isOutcomeUnknown } from './unknown-commits.js';

/**
 * Commits an action's change sets, one transaction per shard, in the order given.
 *
 * Before the first one is written, all shards are looked up, and what is known to be stale on one of them is refused.
 *
 * @returns `key-taken` when the idempotency key of the one change set is there already, `written-before` when one of its
 * unknown commits has happened; nothing written
 * @throws PartialCommitException `partial-commit` when a later shard fails after an earlier one committed
 * @throws UnknownShardException `unknown-shard`, and what {@link TransactionManager.persist} throws: nothing written
 */
export async function commit(
  changeSets: readonly ChangeSet[],
  databases: DatabaseRegistry,
  options: PersistOptions = {},
): Promise<PersistOutcome> {
  const commits = changeSets.map((changes) => ({
    changes,
    manager: databases.transactionManager(changes.shard),
  }));
  // What is known to be stale must be so before another shard is written: after a partial commit, nothing runs again.
  for (const { changes, manager } of commits.length > 1 ? commits : []) {
    const stale = updateOfOtherTimeline(changes, manager.timeline);
    if (stale !== undefined) throw StaleRecordException.of(stale);
  }
  const committed: ShardIdentifier[] = [];
  for (const { changes, manager } of commits) {
    try {
      const outcome = await commitOne(changes, manager, options);
      if (changeSets.length === 1) return outcome;
      // The other shards would get what belongs to a later attempt than what is written here.
      if (outcome === 'written-before') throw new WrittenBefore(`${changes.shard} holds an earlier attempt`);
    } catch (error) {
      if (error instanceof WrittenBefore) committed.push(changes.shard);
      if (committed.length === 0) throw error;
      const unknown = isOutcomeUnknown(error) ? changes.shard : undefined;
      const failed = changeSets
        .slice(committed.length)
        .map(({ shard }) => shard)
        .filter((shard) => shard !== unknown);
      throw new PartialCommitException(changes.action.id, { committed, failed, unknown }, { cause: error });
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

/**
 * Asks the log for the outcome of a commit whose answer was lost.
 *
 * @throws TransientStorageException `transient-storage` when it did not happen, CommitOutcomeUnknownException
 * `commit-outcome-unknown` when that cannot be learnt; any other error than of a lost answer as it is
 */
export async function outcomeOf(error: unknown, manager: TransactionManager): Promise<PersistOutcome> {
  if (!isOutcomeUnknown(error)) throw error;
  if (await hasHappened(error, manager)) return 'written';
  throw new TransientStorageException(manager.shard, 'the connection was lost before the commit', {
    cause: error,
  });
}

/** Why the other shards are not written when an earlier attempt turns out to be committed on one of several. */
class WrittenBefore extends Error {
  override readonly name = 'WrittenBefore';
}
