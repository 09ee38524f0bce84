import { InvariantViolationError } from '@framework/core';
import {
  type BlockedModels,
  type Cursor,
  type DeadLetters,
  type DeliverableEvent,
  type DeliveryLog,
  type DeliveryStore,
  type EventBatch,
  type HandlerCursors,
  HistoryChangedError,
  type LogPartitions,
  type NotificationChannel,
  type OperatorStore,
  type SlotLeases,
} from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import { MemoryBlockedModels } from './memory-blocked-models.js';
import { MemoryDeadLetters } from './memory-dead-letters.js';
import { boundedCopy, formatPlace, parsePlace } from './memory-delivery-tables.js';
import { MemoryHandlerCursors } from './memory-handler-cursors.js';
import { MemorySlotLeases } from './memory-slot-leases.js';

/** Everything that delivery in one process needs from a database in memory. */
export class MemoryDeliveryStore implements DeliveryStore {
  readonly slotCount: number;
  readonly leases: SlotLeases;
  readonly cursors: HandlerCursors;
  readonly log: DeliveryLog;
  readonly blocked: BlockedModels;
  readonly deadLetters: DeadLetters;
  readonly notifications: NotificationChannel;
  readonly partitions: LogPartitions;
  readonly operator: OperatorStore | undefined;

  /**
   * @param end how many of the log's first events are delivered. Default: all
   * @param operator what operators look for, which needs more than the tables of delivery. Default: nothing
   */
  constructor(access: MemoryAccess, end?: number, operator?: OperatorStore) {
    this.slotCount = access.slotCount;
    this.leases = new MemorySlotLeases(access);
    this.cursors = new MemoryHandlerCursors(access);
    this.log = new MemoryDeliveryLog(access, end);
    this.blocked = new MemoryBlockedModels(access, end);
    this.deadLetters = new MemoryDeadLetters(access);
    this.notifications = new MemoryNotificationChannel(access);
    this.partitions = new MemoryLogPartitions(access);
    this.operator = operator;
  }
}

/** A log in memory. Events are in the order of their commits, and reads return copies. */
class MemoryDeliveryLog implements DeliveryLog {
  readonly #access: MemoryAccess;
  readonly #end: number;

  /** @param end how many of the log's first events are returned. Default: all */
  constructor(access: MemoryAccess, end: number = Infinity) {
    this.#access = access;
    this.#end = end;
  }

  read(
    slots: readonly number[],
    cursor: Cursor,
    limit: number,
    bytesMax: number = Infinity,
  ): Promise<EventBatch> {
    return this.#access.answer('log.read', (tables) => {
      const { log } = tables;
      const events: DeliverableEvent[] = [];
      const from = parsePlace(tables, cursor);
      if (from === undefined) throw new HistoryChangedError();
      const visible = log.slice(from, this.#end);
      for (const [index, event] of visible.entries()) {
        if (!slots.includes(event.slot)) continue;
        if (events.length === limit) return { events, next: formatPlace(tables, from + index), more: true };
        events.push(boundedCopy(event, bytesMax));
      }
      return { events, next: formatPlace(tables, from + visible.length), more: false };
    });
  }

  load(events: readonly DeliverableEvent[]): Promise<readonly DeliverableEvent[]> {
    return this.#access.answer('log.load', ({ log }) =>
      events.map(({ id }) => {
        const found = log.find((event) => event.id === id);
        if (found === undefined)
          throw new InvariantViolationError(`Event ${id} is missing from the log: find out what deleted it`);
        return structuredClone(found);
      }),
    );
  }

  find(eventId: string): Promise<DeliverableEvent | undefined> {
    return this.#access.answer('log.find', ({ log }) => {
      const found = log.find(({ id }) => id === eventId);
      return found && structuredClone(found);
    });
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

/** Does nothing, because a log in memory has no partitions. */
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
