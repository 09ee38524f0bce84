import type { DeadLetters } from './dead-letters.js';
import type { DeliverableEvent } from './deliverable-event.js';
import type { Cursor, CursorMove, HandlerCursor, HandlerRegistration } from './handler-cursor.js';
import type { ParkedEvent, ParkedHead, ParkedModel, ParkedOutcome } from './parked-event.js';
import type { LeasedSlot, SlotLease } from './slot-lease.js';

/** Events of some slots that follow a cursor. */
export interface EventBatch {
  /** In the order of the log; those of one model in the order of versions. */
  readonly events: readonly DeliverableEvent[];
  /** Where the slots stand when all of these are done or parked. */
  readonly next: Cursor;
  /** Whether more was committed already. */
  readonly more: boolean;
}

/**
 * Port: what delivery needs of one database, whose log holds the events of one or several shards.
 *
 * Times are the database's. What is written under a lease that was lost is not written; the methods say which slots
 * those were, and the caller stops working on them. Errors are those of `TransactionManager`'s reads.
 */
export interface DeliveryStore extends DeadLetters {
  /** Into how many slots the log is cut by the models' ids: all events of one model are in one slot. */
  readonly slotCount: number;

  /**
   * Makes cursors for handlers that are new here, at the start that they ask for; a handler that lists an old name among
   * its aliases takes over what that one had. Calling it again changes nothing.
   */
  register(handlers: readonly HandlerRegistration[]): Promise<void>;

  /**
   * Says that the process is alive, gives slots back beyond its fair share, and takes free ones up to it.
   *
   * @returns all slots that the process holds now
   */
  renewLeases(processId: string, leaseMs: number): Promise<readonly SlotLease[]>;
  /** Gives all slots of the process back, for others to take at once. */
  releaseLeases(processId: string): Promise<void>;

  /** The cursors of all registered handlers in these slots. */
  cursors(slots: readonly number[]): Promise<readonly HandlerCursor[]>;
  /** Saves cursors; gives back the slots whose lease was lost. */
  saveCursors(moves: readonly CursorMove[]): Promise<readonly number[]>;
  /** The place up to which everything visible now is done. */
  currentCursor(): Promise<Cursor>;

  /**
   * Reads what is visible now and lies beyond a cursor: skips nothing that commits late, and waits for nothing.
   *
   * A long backlog comes in batches of about `limit` events; a transaction is never cut.
   */
  read(slots: readonly number[], cursor: Cursor, limit: number): Promise<EventBatch>;

  /** Parks events; one that is parked already stays as it is. Gives back the slots whose lease was lost. */
  park(events: readonly ParkedEvent[]): Promise<readonly number[]>;
  /** The models that have parked events, for each handler: their further events must be parked, too. */
  parkedModels(slots: readonly number[]): Promise<readonly ParkedModel[]>;
  /**
   * The first parked event of each model that is due for an attempt, the longest due first; no dead letters.
   *
   * A model whose first parked event is a dead letter, or not due yet, has none.
   */
  dueHeads(slots: readonly number[], limit: number): Promise<readonly ParkedHead[]>;
  /** Milliseconds until the next parked event is due, or `undefined` when none waits. */
  nextDueMs(slots: readonly number[]): Promise<number | undefined>;
  /** Counts an attempt before it is made; false when the lease was lost or the event is parked no more. */
  beginAttempt(head: ParkedHead): Promise<boolean>;
  /** Says how an attempt ended; false when the lease was lost. */
  endAttempt(head: ParkedHead, outcome: ParkedOutcome): Promise<boolean>;

  /** Tells other processes, as a hint and outside of any transaction of the business, that something was committed. */
  notify(): Promise<void>;
  /**
   * Calls back at every hint of another process, on a connection of its own that is made again when it breaks.
   *
   * @returns what ends it
   */
  listen(onHint: () => void): Promise<() => Promise<void>>;

  /** Creates the partitions of the log that will be needed, ahead of time. */
  createPartitions(): Promise<void>;
  /** Drops partitions that every cursor has passed and whose events are all older than this; gives their names. */
  dropPartitions(olderThanMs: number): Promise<readonly string[]>;

  /** Whose slot it is now, for operators. */
  leases(): Promise<readonly LeasedSlot[]>;
}
