import type { ActionRecord, DeliverableEvent, ShardIdentifier } from '@framework/core';
import type { MemoryRow } from './memory-row.js';

/** What one change set left behind: all of it was written at once. */
export interface MemoryCommit {
  /** The commit's place among those of all databases that one driver opened, from 0. */
  readonly position: number;
  readonly shard: ShardIdentifier;
  /** What was asked, by whom; params and headers as they stand in the log. */
  readonly action: ActionRecord;
  readonly createdDate: Date;
  /** In the order in which they were staged. */
  readonly changes: readonly MemoryChange[];
  /** In the order in which they were attached; where there are none, the log records the action by a row without event. */
  readonly events: readonly DeliverableEvent[];
  /** The id of the row that records an action without events. */
  readonly recordId: string;
}

/** One row that a commit added or updated. */
export interface MemoryChange {
  readonly kind: 'add' | 'update';
  /** The name of its model. */
  readonly table: string;
  readonly id: string;
  /** The version that the commit gave it. */
  readonly version: number;
  /** The row as the commit left it. */
  readonly row: MemoryRow;
}
