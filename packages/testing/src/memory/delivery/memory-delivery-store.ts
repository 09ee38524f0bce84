import type { DeliveryStore, NotificationChannel, LogPartitions } from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import { MemoryBlockedEvents } from './memory-blocked-events.js';
import { MemoryDeadLetters } from './memory-dead-letters.js';
import { MemoryDeliveryLog } from './memory-delivery-log.js';
import { MemoryHandlerCursors } from './memory-handler-cursors.js';
import { MemorySlotLeases } from './memory-slot-leases.js';

/** Everything that delivery in one process needs from a database in memory. */
export class MemoryDeliveryStore implements DeliveryStore {
  readonly slotCount: number;
  readonly leases: MemorySlotLeases;
  readonly cursors: MemoryHandlerCursors;
  readonly log: MemoryDeliveryLog;
  readonly blocked: MemoryBlockedEvents;
  readonly deadLetters: MemoryDeadLetters;
  readonly notifications: MemoryNotificationChannel;
  readonly partitions: MemoryLogPartitions;

  /** @param end how many of the log's first events are delivered. Default: all */
  constructor(access: MemoryAccess, end?: number) {
    this.slotCount = access.slotCount;
    this.leases = new MemorySlotLeases(access);
    this.cursors = new MemoryHandlerCursors(access);
    this.log = new MemoryDeliveryLog(access, end);
    this.blocked = new MemoryBlockedEvents(access);
    this.deadLetters = new MemoryDeadLetters(access);
    this.notifications = new MemoryNotificationChannel(access);
    this.partitions = new MemoryLogPartitions(access);
  }
}

/** Notifications between processes that share a database in memory. */
class MemoryNotificationChannel implements NotificationChannel {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  notify(): Promise<void> {
    return this.#access.answer('notifications.notify', (tables) => {
      tables.writes.notifies++;
      tables.notify();
    });
  }

  listen(onNotification: () => void): Promise<() => Promise<void>> {
    return this.#access.answer('notifications.listen', () => {
      const end = this.#access.listen(onNotification);
      return async () => end();
    });
  }
}

/** A log in memory has no partitions. */
class MemoryLogPartitions implements LogPartitions {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  create(): Promise<void> {
    return this.#access.answer('partitions.create', () => undefined);
  }

  drop(): Promise<readonly string[]> {
    return this.#access.answer('partitions.drop', () => []);
  }
}
