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
  /**
   * Whether these are a part of a transaction that is larger than a batch, and not the last one: then `next` is a place to read
   * on from, but where it is saved, the place before the transaction is. Default false.
   */
  readonly partial?: boolean;
}

/** Port: the log of one database, as delivery reads it. */
export interface DeliveryLog {
  /**
   * Reads what is visible now and lies beyond a cursor: skips nothing that commits late, and waits for nothing.
   *
   * A long backlog comes in batches of about `limit` events, and so does one large transaction.
   *
   * @param bytesMax larger events come without payload and params, {@link DeliverableEvent.omitted}: so a batch is bounded
   * in bytes, however large its events are. Default: none are
   * @throws HistoryChangedException `history-changed` when the cursor was learnt in another history of the database
   */
  read(slots: readonly number[], cursor: Cursor, limit: number, bytesMax?: number): Promise<EventBatch>;
  /**
   * The given events of a handler with payload and params, in the same order: as the handler has parked them, or as the log
   * holds them.
   *
   * @param handler its permanent id
   */
  load(handler: string, events: readonly DeliverableEvent[]): Promise<readonly DeliverableEvent[]>;
  /** One event, or `undefined` when the log does not hold it. */
  find(eventId: string): Promise<DeliverableEvent | undefined>;
}
