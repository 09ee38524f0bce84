import type { DeliveryStore } from '@framework/core';
import type { MemoryAccess } from './memory-access.js';
import { MemoryDeadLetters } from './memory-dead-letters.js';
import { MemoryDeliveryLog } from './memory-delivery-log.js';
import { MemoryHandlerCursors } from './memory-handler-cursors.js';
import { MemoryHintChannel } from './memory-hint-channel.js';
import { MemoryLogPartitions } from './memory-log-partitions.js';
import { MemoryParkedEvents } from './memory-parked-events.js';
import { MemorySlotLeases } from './memory-slot-leases.js';

/** What delivery needs of a database in memory, for one process. */
export class MemoryDeliveryStore implements DeliveryStore {
  readonly slotCount: number;
  readonly leases: MemorySlotLeases;
  readonly cursors: MemoryHandlerCursors;
  readonly log: MemoryDeliveryLog;
  readonly parked: MemoryParkedEvents;
  readonly deadLetters: MemoryDeadLetters;
  readonly hints: MemoryHintChannel;
  readonly partitions: MemoryLogPartitions;

  /** @param end how many events of the log are delivered at most, the first ones. Default: all */
  constructor(access: MemoryAccess, end?: number) {
    this.slotCount = access.slotCount;
    this.leases = new MemorySlotLeases(access);
    this.cursors = new MemoryHandlerCursors(access);
    this.log = new MemoryDeliveryLog(access, end);
    this.parked = new MemoryParkedEvents(access);
    this.deadLetters = new MemoryDeadLetters(access);
    this.hints = new MemoryHintChannel(access);
    this.partitions = new MemoryLogPartitions(access);
  }
}
