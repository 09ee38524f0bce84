import type { Clock, ShardIdentifier } from '@framework/core';
import type {
  ActionRecord,
  DeliverableEvent,
  HandlerKey,
  OperatorChange,
  RecordedChange,
  StoredKey,
} from '@framework/core/adapter';

import { type MemoryDeliverySnapshot, MemoryDeliveryTables } from './delivery/memory-delivery-tables.js';
import type { MemoryOperation } from './memory-faults.js';
import type { MemoryRow } from './memory-row.js';

/** An idempotency key and when it expires. */
export interface MemoryKey extends StoredKey {
  readonly expiresMs: number;
  readonly createdMs: number;
  /** Increases with each key that is written. */
  readonly serial: number;
  /** Set for a key of a handler. */
  readonly handled: HandlerKey | undefined;
}

/** The phases of an operator's change that are recorded. */
export interface MemoryAudit {
  readonly begun?: OperatorChange & Pick<RecordedChange, 'begunDate'>;
  readonly ended?: RecordedChange['ended'];
}

/** Reads one shard's database as seen by the caller's transaction. */
export interface MemoryReads {
  readonly tables: MemoryTables;
  /** The events, in the order of the log. */
  events(): readonly DeliverableEvent[];
  read<T>(work: () => T, operation?: MemoryOperation, waitMs?: number): Promise<T>;
}

/** The contents of a database in memory at one moment. */
export interface MemorySnapshot {
  readonly rows: ReadonlyMap<string, ReadonlyMap<string, MemoryRow>>;
  readonly commits: readonly MemoryCommit[];
  readonly keys: ReadonlyMap<string, MemoryKey>;
  readonly audit: ReadonlyMap<string, MemoryAudit>;
  readonly delivery: MemoryDeliverySnapshot;
}

/** The contents of a database in memory. */
export class MemoryTables {
  readonly clock: Clock;
  /** All commits, in the order in which they were made. */
  readonly commits: MemoryCommit[] = [];
  /** The idempotency keys, by their scope written as text. */
  readonly keys = new Map<string, MemoryKey>();
  /** How many keys were ever written. */
  keyCount = 0;
  /** The changes of operators that are recorded, by their ids. */
  readonly audit = new Map<string, MemoryAudit>();
  readonly delivery: MemoryDeliveryTables;
  /** Returns the position of a commit among those of several databases. */
  readonly nextPosition: () => number;
  readonly #rows = new Map<string, Map<string, MemoryRow>>();

  /** @param slotCount how many slots the log has */
  constructor(clock: Clock, slotCount: number, nextPosition: () => number) {
    this.clock = clock;
    this.delivery = new MemoryDeliveryTables(clock, slotCount);
    this.nextPosition = nextPosition;
  }

  /** The rows of a table by id. The table is created on first use. */
  rows(table: string): Map<string, MemoryRow> {
    const known = this.#rows.get(table) ?? new Map<string, MemoryRow>();
    this.#rows.set(table, known);
    return known;
  }

  /** The contents that a replica has received or a backup holds. Shares immutable objects. */
  snapshot(): MemorySnapshot {
    return {
      rows: new Map([...this.#rows].map(([table, rows]) => [table, new Map(rows)])),
      commits: this.commits.slice(),
      keys: new Map(this.keys),
      audit: new Map(this.audit),
      delivery: this.delivery.snapshot(),
    };
  }

  /**
   * Continues from a replica's snapshot or a backup, even from another server, and loses everything later. This starts
   * another history: no earlier lease is valid, no cursor in a process's memory is known, and a commit whose answer was
   * lost can no longer be ruled out. With a snapshot of the current contents, this is a crash that loses nothing.
   */
  failOver(replica: MemorySnapshot): void {
    this.#rows.clear();
    for (const [table, rows] of replica.rows) this.#rows.set(table, new Map(rows));
    this.commits.splice(0, Infinity, ...replica.commits);
    this.keys.clear();
    for (const [scope, key] of replica.keys) this.keys.set(scope, key);
    this.audit.clear();
    for (const [id, change] of replica.audit) this.audit.set(id, change);
    this.keyCount = Math.max(this.keyCount, ...[...replica.keys.values()].map(({ serial }) => serial + 1));
    this.delivery.failOver(replica.delivery);
  }

  /** Deletes everything except the delivering processes and the registered handlers. */
  clear(): void {
    this.#rows.clear();
    this.keys.clear();
    this.audit.clear();
    this.commits.length = 0;
    this.delivery.clear();
  }
}

/** The result of one change set, which was written at once. */
export interface MemoryCommit {
  /** The position of the commit among those of all databases that one driver opened, from 0. */
  readonly position: number;
  readonly shard: ShardIdentifier;
  /** The action and its principal, with params and headers as in the log. */
  readonly action: ActionRecord;
  readonly createdDate: Date;
  /** The rows that the commit wrote, in the order in which they were staged. */
  readonly changes: readonly MemoryChange[];
  /** The events in the order in which they were attached. Without any, the log records the action in a row that has no event. */
  readonly events: readonly DeliverableEvent[];
  /** The id of the row that records an action without events. */
  readonly recordId: string;
}

/** A row that a commit added or updated. */
export interface MemoryChange {
  readonly kind: 'add' | 'update';
  /** The name of its model. */
  readonly table: string;
  readonly id: string;
  /** The version after the commit. */
  readonly version: number;
  /** The row after the commit. */
  readonly row: MemoryRow;
}
