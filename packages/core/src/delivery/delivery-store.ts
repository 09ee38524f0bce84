import type { DeadLetters } from './dead-letters.js';
import type { DeliveryLog } from './delivery-log.js';
import type { HandlerCursors } from './handler-cursors.js';
import type { HintChannel } from './hint-channel.js';
import type { LogPartitions } from './log-partitions.js';
import type { ParkedEvents } from './parked-events.js';
import type { SlotLeases } from './slot-leases.js';

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
  readonly parked: ParkedEvents;
  readonly deadLetters: DeadLetters;
  readonly hints: HintChannel;
  readonly partitions: LogPartitions;
}
