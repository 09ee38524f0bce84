import type { DeadLetters, BlockedEvents } from './blocked-events.js';
import type { DeliverableEvent } from './event-log.js';
import type { Cursor, HandlerCursors } from './handler-cursors.js';

/**
 * Port: what delivery needs of one database, whose log holds the events of one or several shards.
 *
 * Times are the database's. Writes under a lost lease are discarded; the methods return the tokens of those leases, and
 * the caller stops working under them. A crash of the database or a failover ends every lease. Errors are those of
 * `TransactionManager`'s reads.
 */
export interface DeliveryStore {
  /** Into how many slots the log is cut by the models' ids, as `slotOf` does: all events of one model are in one slot. */
  readonly slotCount: number;
  readonly leases: SlotLeases;
  readonly cursors: HandlerCursors;
  readonly log: DeliveryLog;
  readonly blocked: BlockedEvents;
  readonly deadLetters: DeadLetters;
  readonly notifications: NotificationChannel;
  readonly partitions: LogPartitions;
}

/** Events of some slots that follow a cursor. */
export interface EventBatch {
  /** In the order of the log; those of one model in the order of versions. */
  readonly events: readonly DeliverableEvent[];
  /** Where the slots stand when all of these are done or blocked. */
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
   * @throws HistoryChangedError `history-changed` when the cursor was learnt in another history of the database
   */
  read(slots: readonly number[], cursor: Cursor, limit: number, bytesMax?: number): Promise<EventBatch>;
  /**
   * The given events of a handler with payload and params, in the same order: as the handler has blocked them, or as the log
   * holds them.
   *
   * @param handler its permanent id
   */
  load(handler: string, events: readonly DeliverableEvent[]): Promise<readonly DeliverableEvent[]>;
  /** One event, or `undefined` when the log does not hold it. */
  find(eventId: string): Promise<DeliverableEvent | undefined>;
}

/** One slot in which a process works for a handler. */
export interface SlotLease {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  /** Differs from that of every other lease: what an earlier holder still writes is refused by it. */
  readonly token: string;
  /** Whether the holder before vanished with it: an event beyond the cursor may have killed it. */
  readonly abandoned: boolean;
}

/** What a process learns when it says that it is alive. */
export interface LeaseRenewal {
  /** All leases that it holds now. */
  readonly leases: readonly SlotLease[];
  /** Whether no other process delivers the events of the database. */
  readonly alone: boolean;
  /**
   * After how many milliseconds another process loses its slots, the first one that does, unless it says that it is alive.
   * Default: not known, and they are had by the next renewal.
   */
  readonly othersEndInMs?: number | undefined;
}

/** Who works in a slot for a handler, for operators. */
export interface LeasedSlot {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  /** `undefined` when nobody does. */
  readonly processId: string | undefined;
  /** When the holder loses it unless it says that it is alive. */
  readonly untilDate: Date | undefined;
}

/**
 * Port: which process works in which slots of one database, for which handlers.
 *
 * A lease is valid in the history of the database in which it was given: after a crash, a failover or in a copy it is nobody's,
 * and what is written under it is refused.
 */
export interface SlotLeases {
  /**
   * Reports that the process is alive, has these handlers and knows these shards; releases slots beyond its fair share of
   * each handler, and takes free ones up to it.
   *
   * It has no share of a handler while another process has that handler and knows all of these shards and more: an event that
   * needs one of the others would wait here for as long as the process lives.
   *
   * A process that is late itself takes nothing from others that are: the database was unreachable then, and no process
   * vanished.
   *
   * @param handlers the permanent ids
   * @param shards on which the handlers can execute actions. Default: none
   */
  renew(
    processId: string,
    handlers: readonly string[],
    leaseMs: number,
    shards?: readonly string[],
  ): Promise<LeaseRenewal>;
  /** Gives all slots of the process back, for others to take at once. */
  release(processId: string): Promise<void>;
  /** Who works where now, for operators; one row for each slot of each handler. */
  list(): Promise<readonly LeasedSlot[]>;
}

/**
 * For adapters: the slot of the log into which the events of a model fall, the same in every process and for ever.
 *
 * @param slotCount into how many slots the log is cut
 * @see https://datatracker.ietf.org/doc/html/draft-eastlake-fnv FNV-1a, 32 bits, over UTF-16 code units
 */
export function slotOf(modelId: string, slotCount: number): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < modelId.length; index++) {
    hash = Math.imul(hash ^ modelId.charCodeAt(index), 0x01000193);
  }
  return ((hash ^ (hash >>> 16)) >>> 0) % slotCount;
}

/** Port: how processes tell each other that something was committed to one database. */
export interface NotificationChannel {
  /** Tells other processes, as a notification and outside of any transaction of the business, that something was committed. */
  notify(): Promise<void>;
  /**
   * Calls back at every notification of another process, on a connection of its own that is made again when it breaks.
   *
   * @returns what ends it
   */
  listen(onNotification: () => void): Promise<() => Promise<void>>;
}

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
