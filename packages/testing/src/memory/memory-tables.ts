import type { Clock, HandlerKey, StoredKey } from '@framework/core';
import { MemoryDeliveryTables } from './delivery/memory-delivery-tables.js';
import type { MemoryCommit } from './memory-commit.js';
import type { MemoryRow } from './memory-row.js';

/** An idempotency key with the time at which it expires. */
export interface MemoryKey extends StoredKey {
  readonly expiresMs: number;
  readonly createdMs: number;
  /** Grows with each key that is written. */
  readonly serial: number;
  /** For a key of a handler. */
  readonly handled: HandlerKey | undefined;
}

/** Everything that one database in memory holds. */
export class MemoryTables {
  readonly clock: Clock;
  /** In the order in which they were made. */
  readonly commits: MemoryCommit[] = [];
  /** By their scopes as text. */
  readonly keys = new Map<string, MemoryKey>();
  /** How many keys were ever written. */
  keyCount = 0;
  readonly delivery: MemoryDeliveryTables;
  readonly #rows = new Map<string, Map<string, MemoryRow>>();

  /** @param slotCount into how many slots the log is cut */
  constructor(clock: Clock, slotCount: number) {
    this.clock = clock;
    this.delivery = new MemoryDeliveryTables(clock, slotCount);
  }

  /** The rows of a table by their ids; it is there as soon as it is asked for. */
  rows(table: string): Map<string, MemoryRow> {
    const known = this.#rows.get(table) ?? new Map<string, MemoryRow>();
    this.#rows.set(table, known);
    return known;
  }

  /** Forgets everything but who delivers and where the handlers are registered. */
  clear(): void {
    this.#rows.clear();
    this.keys.clear();
    this.commits.length = 0;
    this.delivery.clear();
  }
}
