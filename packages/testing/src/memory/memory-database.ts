import type { Clock, Database, ShardIdentifier } from '@framework/core';
import { MemoryAccess } from './delivery/memory-access.js';
import { MemoryDeliveryStore } from './delivery/memory-delivery-store.js';
import type { MemoryFaults } from './memory-faults.js';
import { MemoryTables } from './memory-tables.js';
import { MemoryTransactionManager } from './memory-transaction-manager.js';

/** One database in memory: serves from the beginning, and loses everything with the process. */
export class MemoryDatabase implements Database {
  readonly delivery: MemoryDeliveryStore;
  readonly #tables: MemoryTables;
  readonly #faults: MemoryFaults;
  readonly #nextPosition: () => number;

  constructor(clock: Clock, slotCount: number, faults: MemoryFaults, nextPosition: () => number) {
    this.#faults = faults;
    this.#tables = new MemoryTables(clock, slotCount);
    this.#nextPosition = nextPosition;
    this.delivery = new MemoryDeliveryStore(new MemoryAccess(this.#tables.delivery));
  }

  transactionManager(shard: ShardIdentifier): MemoryTransactionManager {
    return new MemoryTransactionManager(shard, this.#tables, this.#faults, this.#nextPosition);
  }

  async ready(): Promise<void> {}

  async ping(): Promise<void> {}

  async close(): Promise<void> {}
}
