import type { CommitOutcomeUnknownException } from '../errors/storage-exceptions.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ChangeSet } from './change-set.js';
import type { EventLog } from './event-log.js';

/** Port: the transactions of one shard. */
export interface TransactionManager {
  readonly shard: ShardIdentifier;
  /** The shard's log of events, for reading. */
  readonly log: EventLog;

  /**
   * Runs work in one transaction, for scripts and maintenance; repositories used inside join it.
   *
   * Commits when the work resolves, rolls back when it rejects.
   *
   * @throws NestedTransactionException `nested-transaction` inside another one on the same shard
   * @throws CommitOutcomeUnknownException `commit-outcome-unknown` when the connection is lost during the commit
   * @throws whatever the work throws, after which nothing is written
   */
  inTransaction<T>(work: () => Promise<T>): Promise<T>;

  /**
   * Writes a change set in one transaction and resolves when it is durably committed.
   *
   * @throws StaleRecordException `stale-record` when a guarded row has another version or is gone; nothing written
   * @throws TransientStorageException `transient-storage`: nothing written, running the action again can help
   * @throws ShardUnavailableException `shard-unavailable`: nothing written
   * @throws CommitOutcomeUnknownException `commit-outcome-unknown`: ask {@link isCommitted}
   * @throws NestedTransactionException `nested-transaction` inside {@link inTransaction} on the same shard
   */
  persist(changes: ChangeSet): Promise<void>;

  /**
   * Finds out whether a commit that was sent has happened; waits for a bounded time.
   *
   * @returns true when the log holds the action; false when it does not and never will
   * @throws CommitOutcomeUnknownException `commit-outcome-unknown` when that could not be learnt in time
   */
  isCommitted(unknown: CommitOutcomeUnknownException): Promise<boolean>;
}
