import { type Database, InvariantViolation, type ShardIdentifier } from '@framework/core';
import { MemoryAccess } from './delivery/memory-access.js';
import { MemoryDeliveryStore } from './delivery/memory-delivery-store.js';
import type { MemoryFaults } from './memory-faults.js';
import type { MemoryTables } from './memory-tables.js';
import { MemoryTransactionManager } from './memory-transaction-manager.js';

/** One process's way to a database in memory, which serves from the beginning. */
export class MemoryDatabase implements Database {
  readonly delivery: MemoryDeliveryStore;
  readonly #tables: MemoryTables;
  readonly #faults: MemoryFaults;
  readonly #shard: ShardIdentifier;

  /** @param shards those that the process has there, at least one */
  constructor(tables: MemoryTables, [shard]: readonly ShardIdentifier[], faults: MemoryFaults) {
    if (shard === undefined) throw new InvariantViolation('A database holds no shard');
    this.#tables = tables;
    this.#faults = faults;
    this.#shard = shard;
    this.delivery = new MemoryDeliveryStore(new MemoryAccess(tables.delivery, faults, shard));
  }

  transactionManager(shard: ShardIdentifier): MemoryTransactionManager {
    return new MemoryTransactionManager(shard, this.#tables, this.#faults);
  }

  ready(): Promise<void> {
    return this.#faults.ask({ operation: 'ready', shard: this.#shard }, () => undefined);
  }

  ping(): Promise<void> {
    return this.#faults.ask({ operation: 'ping', shard: this.#shard }, () => undefined);
  }

  async close(): Promise<void> {}
}
