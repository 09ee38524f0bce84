import {
  type CommitOutcomeUnknownException,
  TransientStorageException,
} from '../errors/storage-exceptions.js';
import { FrameworkException } from '../errors/framework-exception.js';
import { PartialCommitException } from '../errors/sharding-exceptions.js';
import type { ChangeSet } from '../persistence/change-set.js';
import type { PersistOutcome, TransactionManager } from '../persistence/transaction-manager.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';

/**
 * Commits an action's change sets, one transaction per shard, in the order given.
 *
 * All shards are looked up before the first one is written.
 *
 * @returns `key-taken` when the idempotency key of the one change set is there already; nothing written
 * @throws PartialCommitException `partial-commit` when a later shard fails after an earlier one committed
 * @throws UnknownShardException `unknown-shard`, and what {@link TransactionManager.persist} throws: nothing written
 */
export async function commit(
  changeSets: readonly ChangeSet[],
  databases: DatabaseRegistry,
): Promise<PersistOutcome> {
  const commits = changeSets.map((changes) => ({
    changes,
    manager: databases.transactionManager(changes.shard),
  }));
  const committed: ShardIdentifier[] = [];
  for (const { changes, manager } of commits) {
    try {
      if ((await commitOne(changes, manager)) === 'key-taken') return 'key-taken';
    } catch (error) {
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
async function commitOne(changes: ChangeSet, manager: TransactionManager): Promise<PersistOutcome> {
  try {
    return await manager.persist(changes);
  } catch (error) {
    return outcomeOf(error, manager);
  }
}

/**
 * Asks the log for the outcome of a commit whose answer was lost.
 *
 * @throws TransientStorageException `transient-storage` when it did not happen; any other error as it is
 */
export async function outcomeOf(error: unknown, manager: TransactionManager): Promise<PersistOutcome> {
  if (!isOutcomeUnknown(error)) throw error;
  if (await manager.isCommitted(error)) return 'written';
  throw new TransientStorageException(manager.shard, 'the connection was lost before the commit', {
    cause: error,
  });
}

/** Whether nobody knows yet if a commit happened. By code, because an adapter may bring its own copy of this package. */
export function isOutcomeUnknown(error: unknown): error is CommitOutcomeUnknownException {
  return FrameworkException.is(error) && error.code === 'commit-outcome-unknown';
}
