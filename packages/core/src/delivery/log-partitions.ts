/**
 * Port: the partitions of the log of one database.
 *
 * No commit waits for more than a fraction of a second while they are changed. When others read the log for longer than
 * that, nothing is changed and the methods throw an error that says `retryable`.
 */
export interface LogPartitions {
  /** Creates those that will be needed, ahead of time. */
  create(): Promise<void>;
  /** Drops those that every cursor has passed and whose events are all older than this; gives their names. */
  drop(olderThanMs: number): Promise<readonly string[]>;
}
