import type { DeliveryStore } from '@framework/core/adapter';

import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { slotCount } from '../read/event-row.js';
import { PgBlockedEvents } from './pg-blocked-events.js';
import { PgDeadLetters } from './pg-dead-letters.js';
import { PgDeliveryLog } from './pg-delivery-log.js';
import { PgHandlerCursors } from './pg-handler-cursors.js';
import { PgLogPartitions } from './pg-log-partitions.js';
import { type NotificationSettings, PgNotificationChannel } from './pg-notifications.js';
import { PgSlotLeases } from './pg-slot-leases.js';

/** What delivery needs of one PostgreSQL database. */
export class PgDeliveryStore implements DeliveryStore {
  readonly slotCount: number = slotCount;
  readonly leases: PgSlotLeases;
  readonly cursors: PgHandlerCursors;
  readonly log: PgDeliveryLog;
  readonly blocked: PgBlockedEvents;
  readonly deadLetters: PgDeadLetters;
  readonly notifications: PgNotificationChannel;
  readonly partitions: PgLogPartitions;

  /**
   * @param leases where leases are renewed, behind nothing else
   * @param notifications where to listen for notifications, on a connection of its own
   */
  constructor(
    manager: PgTransactionManager,
    leases: PgTransactionManager,
    notifications: NotificationSettings,
  ) {
    this.leases = new PgSlotLeases(leases);
    this.cursors = new PgHandlerCursors(manager);
    this.log = new PgDeliveryLog(manager);
    this.blocked = new PgBlockedEvents(manager);
    this.deadLetters = new PgDeadLetters(manager);
    this.notifications = new PgNotificationChannel(manager, notifications);
    this.partitions = new PgLogPartitions(manager);
  }
}
