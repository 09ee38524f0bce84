import type { Clock, ShardIdentifier } from '@framework/core';
import type { ActionRecord, DeliverableEvent, HandlerKey, StoredKey } from '@framework/core/adapter';

import { type MemoryDeliverySnapshot, MemoryDeliveryTables } from './delivery/memory-delivery-tables.js';
import type { MemoryOperation } from './memory-faults.js';
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

/** Reads one shard's database, as the transaction sees it in which the caller runs. */
export interface MemoryReads {
  readonly tables: MemoryTables;
  /** The events, in the order of the log. */
  events(): readonly DeliverableEvent[];
  read<T>(work: () => T, operation?: MemoryOperation, waitMs?: number): Promise<T>;
}

/** Everything that a database in memory held at one instant. */
export interface MemorySnapshot {
  readonly rows: ReadonlyMap<string, ReadonlyMap<string, MemoryRow>>;
  readonly commits: readonly MemoryCommit[];
  readonly keys: ReadonlyMap<string, MemoryKey>;
  readonly delivery: MemoryDeliverySnapshot;
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
  /** Gives each commit its place among those of several databases. */
  readonly nextPosition: () => number;
  readonly #rows = new Map<string, Map<string, MemoryRow>>();

  /** @param slotCount into how many slots the log is cut */
  constructor(clock: Clock, slotCount: number, nextPosition: () => number) {
    this.clock = clock;
    this.delivery = new MemoryDeliveryTables(clock, slotCount);
    this.nextPosition = nextPosition;
  }

  /** The rows of a table by their ids; it is there as soon as it is asked for. */
  rows(table: string): Map<string, MemoryRow> {
    const known = this.#rows.get(table) ?? new Map<string, MemoryRow>();
    this.#rows.set(table, known);
    return known;
  }

  /** What a replica has received by now, or what a backup holds; shares what nobody changes. */
  snapshot(): MemorySnapshot {
    return {
      rows: new Map([...this.#rows].map(([table, rows]) => [table, new Map(rows)])),
      commits: this.commits.slice(),
      keys: new Map(this.keys),
      delivery: this.delivery.snapshot(),
    };
  }

  /**
   * Goes on from what a replica had received, or from a backup, also one of another server: what came later is lost. That is
   * another history: no lease of before holds, no cursor in a process's memory is known, and of a commit whose answer was lost
   * nobody can say any more that it did not happen. From what it holds now, it is a crash.
   */
  failOver(replica: MemorySnapshot): void {
    this.#rows.clear();
    for (const [table, rows] of replica.rows) this.#rows.set(table, new Map(rows));
    this.commits.splice(0, Infinity, ...replica.commits);
    this.keys.clear();
    for (const [scope, key] of replica.keys) this.keys.set(scope, key);
    this.keyCount = Math.max(this.keyCount, ...[...replica.keys.values()].map(({ serial }) => serial + 1));
    this.delivery.failOver(replica.delivery);
  }

  /** Forgets everything but who delivers and where the handlers are registered. */
  clear(): void {
    this.#rows.clear();
    this.keys.clear();
    this.commits.length = 0;
    this.delivery.clear();
  }
}

/** What one change set left behind: all of it was written at once. */
export interface MemoryCommit {
  /** The commit's place among those of all databases that one driver opened, from 0. */
  readonly position: number;
  readonly shard: ShardIdentifier;
  /** What was asked, by whom; params and headers as they stand in the log. */
  readonly action: ActionRecord;
  readonly createdDate: Date;
  /** In the order in which they were staged. */
  readonly changes: readonly MemoryChange[];
  /** In the order in which they were attached; where there are none, the log records the action by a row without event. */
  readonly events: readonly DeliverableEvent[];
  /** The id of the row that records an action without events. */
  readonly recordId: string;
}

/** One row that a commit added or updated. */
export interface MemoryChange {
  readonly kind: 'add' | 'update';
  /** The name of its model. */
  readonly table: string;
  readonly id: string;
  /** The version that the commit gave it. */
  readonly version: number;
  /** The row as the commit left it. */
  readonly row: MemoryRow;
}
