import type { BlockedModels, DeadLetters } from './blocked-models.js';
import type { DeliverableEvent } from './event-log.js';
import type { Cursor, HandlerCursors } from './handler-cursors.js';
import type { OperatorStore } from './operator-store.js';

/**
 * Port: what delivery needs from one database, whose log holds the events of one or several shards.
 *
 * Times are measured by the database. Writes under a lost lease are discarded; the methods return the tokens of those leases, and
 * the caller stops working under them. A crash of the database or a failover ends every lease. The methods throw the same errors
 * as reads with a `TransactionManager`.
 */
export interface DeliveryStore {
  /**
   * The number of slots of the log; `slotOf` assigns models to slots by their ids, so all events of one model are in one slot.
   */
  readonly slotCount: number;
  readonly leases: SlotLeases;
  readonly cursors: HandlerCursors;
  readonly log: DeliveryLog;
  readonly blocked: BlockedModels;
  readonly deadLetters: DeadLetters;
  readonly notifications: NotificationChannel;
  readonly partitions: LogPartitions;
  /** For operators; absent if the adapter has none. */
  readonly operator?: OperatorStore | undefined;
}

/** Events of some slots that follow a cursor. */
export interface EventBatch {
  /** In the order of the log, which for one model is the order of versions. */
  readonly events: readonly DeliverableEvent[];
  /** The new position of the slots when all of these are done or left to blocked models. */
  readonly next: Cursor;
  /** Whether more has already been committed. */
  readonly more: boolean;
  /**
   * Whether these are part of a transaction that is larger than a batch, but not the last part. Then `next` only says where to
   * continue reading; when it is saved, the position before the transaction is stored. Default false.
   */
  readonly partial?: boolean;
}

/** Port: the log of one database, as delivery reads it. */
export interface DeliveryLog {
  /**
   * Reads what is visible now after a cursor: skips nothing that commits late, and waits for nothing.
   *
   * A long backlog is returned in batches of about `limit` events, and so is one large transaction.
   *
   * @param bytesMax larger events come without payload and params, {@link DeliverableEvent.omitted}, and without headers if these
   * alone are larger, so that a batch has a limited size in bytes. Default: no event is too large
   * @throws HistoryChangedError `history-changed` when the cursor was read in another history of the database
   */
  read(slots: readonly number[], cursor: Cursor, limit: number, bytesMax?: number): Promise<EventBatch>;
  /**
   * The given events with payload and params, in the same order.
   *
   * @throws InvariantViolationError `invariant-violation` when the log has lost one
   */
  load(events: readonly DeliverableEvent[]): Promise<readonly DeliverableEvent[]>;
  /** One event, or `undefined` when it is not in the log. */
  find(eventId: string): Promise<DeliverableEvent | undefined>;
}

/** One slot in which a process works for a handler. */
export interface SlotLease {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  /** Different for every lease, so that the database refuses what an earlier holder still writes. */
  readonly token: string;
  /** Whether a holder died, and the slot has not recovered since: an event after the cursor may have killed that process. */
  readonly abandoned: boolean;
  /** Whether it is beyond the holder's fair share: the holder is to finish there, and to give it back. */
  readonly surplus: boolean;
}

/** The answer to a process that reports that it is alive. */
export interface LeaseRenewal {
  /** All leases that it holds now. */
  readonly leases: readonly SlotLease[];
  /** Whether no other process delivers the events of the database. */
  readonly alone: boolean;
  /**
   * Milliseconds until the first of the other processes loses its slots unless it reports that it is alive. Default: unknown; then
   * its slots are taken at the next renewal.
   */
  readonly othersEndInMs?: number | undefined;
}

/** Which process works in a slot for a handler, for operators. */
export interface LeasedSlot {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  /** `undefined` when no process does. */
  readonly processId: string | undefined;
  /** When the holder loses the lease unless it reports that it is alive. */
  readonly untilDate: Date | undefined;
}

/**
 * Port: which process works in which slots of one database, for which handlers.
 *
 * A lease is valid in the history of the database in which it was given. After a crash, after a failover or in a copy it belongs
 * to nobody, and writes under it are refused.
 */
export interface SlotLeases {
  /**
   * Reports that the process is alive, has these handlers and knows these shards. Gives back the slots with which it has finished,
   * and those of other handlers, and takes free ones up to its fair share of each handler. Slots beyond that share stay with the
   * process until it gives them back; they are reported as surplus.
   *
   * It has no share of a handler while another process has that handler and knows all of these shards and more. Otherwise, an
   * event that needs one of the other shards would wait here as long as the process lives.
   *
   * A process that is late itself takes nothing from other processes that are late: the cause was probably that the database was
   * unreachable, and not that a process died.
   *
   * @param handlers the permanent ids
   * @param shards on which the handlers can execute actions. Default: none
   * @param givenBack the tokens of leases that the process no longer needs; one that is lost changes nothing. Default: none
   */
  renew(
    processId: string,
    handlers: readonly string[],
    leaseMs: number,
    shards?: readonly string[],
    givenBack?: readonly string[],
  ): Promise<LeaseRenewal>;
  /**
   * Records that slots are no longer abandoned, because everything that the dead holder may have been handling has been tried. Until
   * then a slot stays abandoned, even if it is given back and another process takes it.
   *
   * @param tokens the tokens of their leases; one that is lost changes nothing
   */
  recovered(tokens: readonly string[]): Promise<void>;
  /** Gives all slots of the process back, so that others can take them at once. */
  release(processId: string): Promise<void>;
  /** Which process works in each slot of each handler now, for operators; one row each. */
  list(): Promise<readonly LeasedSlot[]>;
}

/** Port: how processes notify each other that something was committed to one database. */
export interface NotificationChannel {
  /** Notifies other processes that something was committed, outside of any business transaction. */
  notify(): Promise<void>;
  /**
   * Calls the listener for every notification of another process, on a separate connection that is reopened when it breaks. Calls it
   * as well when notifications may have been missed: when the connection breaks, and once a new one receives notifications.
   *
   * @returns a function that ends it
   */
  listen(onNotification: () => void): Promise<() => Promise<void>>;
}

/**
 * Port: the partitions of the log of one database.
 *
 * While they are changed, no commit waits for more than a fraction of a second. If others are reading the log for longer than
 * that, nothing is changed, and the methods throw an error that is `retryable`.
 */
export interface LogPartitions {
  /** Creates partitions ahead of time. */
  create(): Promise<void>;
  /**
   * Drops partitions that every cursor has passed and whose events are all older than this; returns their names. Events that wait for
   * a handler in a blocked model are kept.
   */
  drop(olderThanMs: number): Promise<readonly string[]>;
}
