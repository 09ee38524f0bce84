import type { DeliverableEvent } from './deliverable-event.js';
import type { Cursor } from './handler-cursors.js';

/** Events of some slots that follow a cursor. */
export interface EventBatch {
  /** In the order of the log; those of one model in the order of versions. */
  readonly events: readonly DeliverableEvent[];
  /** Where the slots stand when all of these are done or parked. */
  readonly next: Cursor;
  /** Whether more was committed already. */
  readonly more: boolean;
}

/** Port: the log of one database, as delivery reads it. */
export interface DeliveryLog {
  /**
   * Reads what is visible now and lies beyond a cursor: skips nothing that commits late, and waits for nothing.
   *
   * A long backlog comes in batches of about `limit` events; a transaction is never cut.
   *
   * @throws HistoryChangedException `history-changed` when the cursor was learnt in another history of the database
   */
  read(slots: readonly number[], cursor: Cursor, limit: number): Promise<EventBatch>;
  /** One event, or `undefined` when the log does not hold it. */
  find(eventId: string): Promise<DeliverableEvent | undefined>;
}
