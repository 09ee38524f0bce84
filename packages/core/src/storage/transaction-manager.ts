import { AsyncLocalStorage } from 'node:async_hooks';

import { FrameworkError } from '../errors/framework-error.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { AnyEntity } from '../model/model.js';
import type { ChangeSet } from './change-set.js';
import type { EventLog } from './event-log.js';
import type { IdempotencyKeys } from './idempotency-keys.js';
import type { ModelSource } from './repository.js';
import { CommitOutcomeUnknownError, TransientStorageError } from './storage-errors.js';

/**
 * Whether a change set was written. Nothing was written with `key-taken`, when its idempotency key already exists, and with
 * `written-before`, when one of its {@link ChangeSet.unknownCommits} has happened.
 */
export type PersistOutcome = 'written' | 'key-taken' | 'written-before';

/**
 * The outcome of one change set of a group: as with {@link TransactionManager.persist}, or the error that it would have thrown,
 * or `single`: nothing of it was written, and it must be persisted on its own.
 */
export type GroupOutcome = PersistOutcome | 'single' | FrameworkError;

/** How a change set is written. */
export interface PersistOptions {
  /**
   * Whether it waits for locks only for a short time, as a group does, and then fails as `transient-storage`; by default it waits
   * as long as a statement may take.
   */
  readonly shortLockWait?: boolean;
  /**
   * Called when the write begins to wait for a row that another session has locked, so that others need not wait for this write.
   */
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
   * Counts the servers that have taken over from each other, as far as this process has seen. A server that has taken over may
   * lack commits, and so may one that has recovered from a crash. It never decreases: reads and writes from now on meet this
   * timeline or a later one.
   */
  readonly timeline: number;

  /**
   * Runs work in one transaction, for scripts and maintenance; repositories used inside join it.
   *
   * Commits when the work resolves, rolls back when it rejects.
   *
   * @throws NestedTransactionError `nested-transaction` inside another one on the same shard
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when the connection is lost during the commit
   * @throws whatever the work throws; then nothing is written
   */
  inTransaction<T>(work: () => Promise<T>): Promise<T>;

  /**
   * Writes a change set, with its idempotency key, in one transaction and resolves when it is durably committed.
   *
   * Waits for a transaction that is writing the same key; an expired key is taken over.
   *
   * @returns `key-taken` when the key already existed, `written-before` when one of its unknown commits has happened; nothing
   * written. If both are true, `key-taken`
   * @throws StaleRecordError `stale-record` when a guarded row has another version or is gone, or was read on another timeline;
   * nothing written
   * @throws TransientStorageError `transient-storage`: nothing written, running the action again can help
   * @throws ShardUnavailableError `shard-unavailable`: nothing written
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown`: ask {@link isCommitted}
   * @throws NestedTransactionError `nested-transaction` inside {@link inTransaction} on the same shard
   */
  persist(changes: ChangeSet, options?: PersistOptions): Promise<PersistOutcome>;

  /**
   * Writes change sets of several actions in one transaction: each of them as {@link persist} would, in the order given, entirely
   * or not at all, whatever happens to the others.
   *
   * A row may be changed by several of them, each expecting the version that the previous one writes. It may be written only
   * once, with its last state, if {@link persist} would certainly accept every state in between and nothing would see those
   * states; otherwise the others are `single`. If one is not written, those that follow it on the same row are not written
   * either. An idempotency key occurs only once. None of them has unknown commits.
   *
   * Waits for a lock only for a short time, because all of them would wait; a change set that is written again alone may wait
   * longer.
   *
   * @returns an outcome for each change set, in order; `single` for those that this group could not hold. An unknown outcome is
   * reported for each change set, by a separate error with which {@link isCommitted} finds it
   * @throws what {@link persist} throws when nothing of the whole group is written; never `commit-outcome-unknown`
   */
  persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]>;

  /** Whether the caller runs within {@link inTransaction} of this shard, and so cannot persist anything. */
  isInTransaction(): boolean;

  /**
   * Finds out whether a commit that was sent has happened; waits for a limited time. If an error lacks the session that the
   * adapter has added to it, only the action can be looked up; if that does not decide it, the outcome stays unknown.
   *
   * A server that may not know of the commit yet, such as a standby, or that has another history than the one to which it was
   * sent, such as a standby that took over, can tell that the commit happened, but not that it did not.
   *
   * @returns true when the log contains the action; false when it does not and never will
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when that could not be found out in time; any other error means
   * the same
   */
  isCommitted(unknown: CommitOutcomeUnknownError): Promise<boolean>;
}

/**
 * Asks the log for the outcome of a commit whose answer was lost.
 *
 * @throws TransientStorageError `transient-storage` when it did not happen, CommitOutcomeUnknownError `commit-outcome-unknown`
 * when that cannot be found out; an error other than a lost answer is thrown unchanged
 */
export async function outcomeOf(error: unknown, manager: TransactionManager): Promise<PersistOutcome> {
  if (!isOutcomeUnknown(error)) throw error;
  if (await hasHappened(error, manager)) return 'written';
  throw new TransientStorageError(manager.shard, 'the connection was lost before the commit', {
    cause: error,
  });
}

/**
 * Asks the log whether a commit whose answer was lost has happened.
 *
 * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when that cannot be found out for any reason
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

/** Whether an error says that the outcome of a commit is unknown. */
export function isOutcomeUnknown(error: unknown): error is CommitOutcomeUnknownError {
  return FrameworkError.is(error) && error.code === 'commit-outcome-unknown';
}

/** For transaction managers: the transactions in which callers run. Whatever is started in a transaction also finds it. */
export class OpenTransactions<Transaction> {
  readonly #transactions = new AsyncLocalStorage<ReadonlyMap<object, Transaction>>();

  /** The transaction that a manager has open where the caller runs, if any. */
  of(manager: object): Transaction | undefined {
    return this.#transactions.getStore()?.get(manager);
  }

  /** Runs the work within a manager's transaction, in addition to those of other managers in which the caller runs. */
  runWithin<Result>(manager: object, transaction: Transaction, work: () => Promise<Result>): Promise<Result> {
    // Awaited inside the context: a lazy query, such as one of Drizzle's, begins only when it is awaited.
    return this.#transactions.run(
      new Map(this.#transactions.getStore()).set(manager, transaction),
      async () => await work(),
    );
  }
}

/** The context of an attempt, which code inside an action's `perform` finds through async context. */
export interface AttemptContext {
  readonly actionName: string;
  /** The plan of the attempt; it is sealed when `perform` has returned. */
  readonly plan: { readonly sealed: boolean };
  readonly reads: AttemptReads;
  /** The shards that the execution has accessed by reads of any kind. */
  readonly shards: Set<ShardIdentifier>;
}

/** How one attempt reads models by their ids. */
export interface AttemptReads {
  /** Reads a model, or returns `undefined`, after waiting for the lock on it. */
  read<M extends AnyEntity>(source: ModelSource<M>, id: string): Promise<M | undefined>;
  /** Reads models and returns them by id, without the missing ones; does not wait for locks on them. */
  readSeveral<M extends AnyEntity>(
    source: ModelSource<M>,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, M>>;
  /** The timeline on which the attempt reads a shard: that of its first access, which this method records. */
  timelineOf(manager: Pick<TransactionManager, 'shard' | 'timeline'>): number;
}

const attempts = new AsyncLocalStorage<AttemptContext>();

/** Runs the work in the context of an attempt. Everything that it starts keeps this context. */
export function runInAttempt<T>(context: AttemptContext, work: () => Promise<T>): Promise<T> {
  // Awaited here, because a lazy thenable that the work returns starts only when it is awaited.
  return attempts.run(context, async () => await work());
}

/** The attempt in which the caller runs, if any; its plan may be sealed already. */
export function currentAttempt(): AttemptContext | undefined {
  return attempts.getStore();
}
