import type { DeliverableEvent, DeliveryStore } from '@framework/core';
import type pg from 'pg';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { EventReader } from './event-reader.js';
import { type EventRow, deliverableEvent, eventColumns } from './event-row.js';
import { HandlerCursors } from './handler-cursors.js';
import { HintChannel, notifyText } from './hint-channel.js';
import { LogPartitions } from './log-partitions.js';
import { ParkedEvents } from './parked-events.js';
import { ParkedRows } from './parked-rows.js';
import { SlotLeases } from './slot-leases.js';
import { slotCount } from './slot-of.js';

/** What delivery needs of one PostgreSQL database, each part in a file of its own. */
export function pgDeliveryStore(manager: PgTransactionManager, settings: pg.ClientConfig): DeliveryStore {
  const leases = new SlotLeases(manager);
  const cursors = new HandlerCursors(manager);
  const reader = new EventReader(manager);
  const parked = new ParkedEvents(manager);
  const partitions = new LogPartitions(manager);
  const rows = new ParkedRows(manager);
  return {
    slotCount,
    register: (handlers) => cursors.register(handlers),
    renewLeases: (processId, leaseMs) => leases.renewLeases(processId, leaseMs),
    releaseLeases: (processId) => leases.releaseLeases(processId),
    leases: () => leases.leases(),
    cursors: (slots) => cursors.cursors(slots),
    saveCursors: (moves) => cursors.saveCursors(moves),
    currentCursor: () => cursors.currentCursor(),
    read: (slots, cursor, limit) => reader.read(slots, cursor, limit),
    park: (events) => parked.park(events),
    parkedModels: (slots) => parked.parkedModels(slots),
    dueHeads: (slots, limit) => parked.dueHeads(slots, limit),
    nextDueMs: (slots) => parked.nextDueMs(slots),
    beginAttempt: (head) => parked.beginAttempt(head),
    endAttempt: (head, outcome) => parked.endAttempt(head, outcome),
    notify: async () => void (await manager.query({ text: notifyText })),
    listen: async (onHint) => {
      const channel = new HintChannel(settings, onHint);
      return () => channel.close();
    },
    createPartitions: () => partitions.createPartitions(),
    dropPartitions: (olderThanMs) => partitions.dropPartitions(olderThanMs),
    findParked: (filter, page) => rows.findParked(filter, page),
    replay: (filter) => rows.replay(filter),
    skip: (filter) => rows.skip(filter),
    setPaused: (handler, paused) => rows.setPaused(handler, paused),
    lag: () => rows.lag(),
    findEvent: (eventId) => findEvent(manager, eventId),
    hasPassed: (handler, event) => hasPassed(manager, handler, event),
  };
}

async function findEvent(
  manager: PgTransactionManager,
  eventId: string,
): Promise<DeliverableEvent | undefined> {
  const { rows } = await manager.query<EventRow>({
    text: `select ${eventColumns} from eventlog.events e where e.id = $1 and e.event_type is not null`,
    values: [eventId],
  });
  const row = rows[0];
  return row === undefined ? undefined : deliverableEvent(row);
}

async function hasPassed(
  manager: PgTransactionManager,
  handler: string,
  event: DeliverableEvent,
): Promise<boolean> {
  const { rowCount } = await manager.query({
    text: `select from eventlog.events e join eventlog.cursors c on c.slot = e.slot and c.handler = $1
           where e.id = $2 and pg_visible_in_snapshot(e.xid, c.snapshot)`,
    values: [handler, event.id],
  });
  return rowCount !== 0;
}
