import type { DeliveryStore } from '@framework/core';
import type pg from 'pg';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { PgDeadLetters } from './pg-dead-letters.js';
import { PgDeliveryLog } from './pg-delivery-log.js';
import { PgHandlerCursors } from './pg-handler-cursors.js';
import { PgHintChannel } from './pg-hint-channel.js';
import { PgLogPartitions } from './pg-log-partitions.js';
import { PgParkedEvents } from './pg-parked-events.js';
import { PgSlotLeases } from './pg-slot-leases.js';
import { slotCount } from './slot-of.js';

/** What delivery needs of one PostgreSQL database. */
export class PgDeliveryStore implements DeliveryStore {
  readonly slotCount: number = slotCount;
  readonly leases: PgSlotLeases;
  readonly cursors: PgHandlerCursors;
  readonly log: PgDeliveryLog;
  readonly parked: PgParkedEvents;
  readonly deadLetters: PgDeadLetters;
  readonly hints: PgHintChannel;
  readonly partitions: PgLogPartitions;

  /** @param settings where to listen for hints, on a connection of its own */
  constructor(manager: PgTransactionManager, settings: pg.ClientConfig) {
    this.leases = new PgSlotLeases(manager);
    this.cursors = new PgHandlerCursors(manager);
    this.log = new PgDeliveryLog(manager);
    this.parked = new PgParkedEvents(manager);
    this.deadLetters = new PgDeadLetters(manager);
    this.hints = new PgHintChannel(manager, settings);
    this.partitions = new PgLogPartitions(manager);
  }
}
