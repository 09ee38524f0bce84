/** Port: the partitions of the log of one database. */
export interface LogPartitions {
  /** Creates those that will be needed, ahead of time. */
  create(): Promise<void>;
  /** Drops those that every cursor has passed and whose events are all older than this; gives their names. */
  drop(olderThanMs: number): Promise<readonly string[]>;
}
