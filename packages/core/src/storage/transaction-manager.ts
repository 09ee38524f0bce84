import { AsyncLocalStorage } from 'node:async_hooks';

import { FrameworkError } from '../errors/framework-error.js';
import { CommitOutcomeUnknownError, TransientStorageError } from '../errors/storage-errors.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ChangeSet } from './change-set.js';
import type { EventLog } from './event-log.js';
import type { IdempotencyKeys } from './idempotency-keys.js';

/**
 * Whether a change set was written. Nothing was with `key-taken`, when its idempotency key is there already, and with
 * `written-before`, when one of its {@link ChangeSet.unknownCommits} has happened.
 */
export type PersistOutcome = 'written' | 'key-taken' | 'written-before';

/**
 * What became of one change set of a group: as with {@link TransactionManager.persist}, or the error that this would have
 * thrown, or `single`: nothing of it was written, and it must be persisted on its own.
 */
export type GroupOutcome = PersistOutcome | 'single' | FrameworkError;

/** How a change set is written. */
export interface PersistOptions {
  /**
   * Whether it waits for locks for a short time only, as a group does, and then fails as `transient-storage`; by default as
   * long as a statement may take.
   */
  readonly shortLockWait?: boolean;
  /** Called when somebody else has locked a row and that is waited for: others need not wait for this one. */
  readonly onLockedOut?: () => void;
}

/** Port: the transactions of one shard. */
export interface TransactionManager {
  readonly shard: ShardIdentifier;
  /** The shard's log of events, for reading. */
  readonly log: EventLog;
  /** The idempotency keys of the shard's database. */
  readonly keys: IdempotencyKeys;
  /**
   * Counts the servers that have taken over from each other, as far as this process has seen: the one that took over may lack commits,
   * and so may one that has recovered from a crash. What is read or written from now on meets this timeline or a later one; it never
   * decreases.
   */
  readonly timeline: number;

  /**
   * Runs work in one transaction, for scripts and maintenance; repositories used inside join it.
   *
   * Commits when the work resolves, rolls back when it rejects.
   *
   * @throws NestedTransactionError `nested-transaction` inside another one on the same shard
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when the connection is lost during the commit
   * @throws whatever the work throws, after which nothing is written
   */
  inTransaction<T>(work: () => Promise<T>): Promise<T>;

  /**
   * Writes a change set, with its idempotency key, in one transaction and resolves when it is durably committed.
   *
   * Waits for a transaction that is writing the same key; an expired key is taken over.
   *
   * @returns `key-taken` when the key was there already, `written-before` when one of its unknown commits has happened:
   * nothing written; of a change set that has both, the key tells
   * @throws StaleRecordError `stale-record` when a guarded row has another version or is gone, or was read on another timeline;
   * nothing written
   * @throws TransientStorageError `transient-storage`: nothing written, running the action again can help
   * @throws ShardUnavailableError `shard-unavailable`: nothing written
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown`: ask {@link isCommitted}
   * @throws NestedTransactionError `nested-transaction` inside {@link inTransaction} on the same shard
   */
  persist(changes: ChangeSet, options?: PersistOptions): Promise<PersistOutcome>;

  /**
   * Writes change sets of several actions in one transaction: each of them as {@link persist} would, in the order given,
   * as a whole or not at all, whatever becomes of the others.
   *
   * A row may be changed by several of them, each expecting the version that the one before writes. It may be written once, as
   * the last one leaves it, where {@link persist} would surely accept every state between and nothing would see them; else
   * the others are `single`. What follows one that is not written is not written either. An idempotency key
   * occurs once. None of them has unknown commits.
   *
   * Waits for a lock for a short time only, because all of them would wait; what is written again alone may wait longer.
   *
   * @returns an outcome for each change set, in order; `single` for what this group could not hold. An unknown outcome is
   * reported for each, by an error of its own with which {@link isCommitted} finds this change set
   * @throws what {@link persist} throws when nothing of all of them is written; never `commit-outcome-unknown`
   */
  persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]>;

  /** Whether the caller runs within {@link inTransaction} of this shard, so that it can persist nothing. */
  isInTransaction(): boolean;

  /**
   * Finds out whether a commit that was sent has happened; waits for a bounded time. Of an error without the session that the
   * adapter has given it, nothing is known but the action: where that does not decide it, the outcome stays unknown.
   *
   * A server that may not know of the commit yet, such as a standby, or that has another history than the one to which
   * it was sent, such as a standby that took over, can say that it happened, but not that it did not.
   *
   * @returns true when the log holds the action; false when it does not and never will
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when that could not be learnt in time; whatever else it
   * throws means the same
   */
  isCommitted(unknown: CommitOutcomeUnknownError): Promise<boolean>;
}

/**
 * Asks the log for the outcome of a commit whose answer was lost.
 *
 * @throws TransientStorageError `transient-storage` when it did not happen, CommitOutcomeUnknownError
 * `commit-outcome-unknown` when that cannot be learnt; any other error than of a lost answer as it is
 */
export async function outcomeOf(error: unknown, manager: TransactionManager): Promise<PersistOutcome> {
  if (!isOutcomeUnknown(error)) throw error;
  if (await hasHappened(error, manager)) return 'written';
  throw new TransientStorageError(manager.shard, 'the connection was lost before the commit', {
    cause: error,
  });
}

/**
 * Asks the log whether a commit happened whose answer was lost.
 *
 * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when that cannot be learnt, whatever is in the way
 */
export async function hasHappened(
  unknown: CommitOutcomeUnknownError,
  manager: TransactionManager,
): Promise<boolean> {
  try {
    return await manager.isCommitted(unknown);
  } catch (failure) {
    if (isOutcomeUnknown(failure)) throw failure;
    const { shard, actionId, session } = unknown;
    throw new CommitOutcomeUnknownError(shard, actionId, { session, cause: failure });
  }
}

/** Whether an error says that the outcome of a commit is not known. */
export function isOutcomeUnknown(error: unknown): error is CommitOutcomeUnknownError {
  return FrameworkError.is(error) && error.code === 'commit-outcome-unknown';
}

/** The transactions in which callers run, for transaction managers: each is found by all that its work starts. */
export class OpenTransactions<Transaction> {
  readonly #transactions = new AsyncLocalStorage<ReadonlyMap<object, Transaction>>();

  /** The transaction that a manager has open where the caller runs, if any. */
  of(manager: object): Transaction | undefined {
    return this.#transactions.getStore()?.get(manager);
  }

  /** Runs the work within a manager's transaction, beside those of other managers. */
  runWithin<Result>(manager: object, transaction: Transaction, work: () => Promise<Result>): Promise<Result> {
    // Awaited within: what only begins when it is awaited, as a query of Drizzle does, must begin here.
    return this.#transactions.run(
      new Map(this.#transactions.getStore()).set(manager, transaction),
      async () => await work(),
    );
  }
}
