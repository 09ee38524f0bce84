import {
  type ChangeSet,
  CommitOutcomeUnknownException,
  type DeliverableEvent,
  type GroupOutcome,
  InvariantViolation,
  NestedTransactionException,
  OpenTransactions,
  type PersistOutcome,
  type ShardIdentifier,
  type TransactionManager,
  TransactionOverException,
  TransientStorageException,
} from '@framework/core';
import { applyChangeSet, isCommitted } from './apply-change-set.js';
import { applyGroup } from './apply-group.js';
import { MemoryEventLog } from './memory-event-log.js';
import { MemoryIdempotencyKeys } from './memory-idempotency-keys.js';
import { ConnectionLost, type MemoryFaults } from './memory-faults.js';
import type { MemoryRow } from './memory-row.js';
import type { MemoryTables } from './memory-tables.js';

/** A transaction in which the caller runs. */
interface OpenTransaction {
  /** What it has written and not committed, by table and id. */
  readonly written: Map<string, Map<string, MemoryRow>>;
  /** Whether it has ended, while something that it started still runs. */
  over: boolean;
}

const transactions = new OpenTransactions<OpenTransaction>();

/** The transactions of one shard in memory. */
export class MemoryTransactionManager implements TransactionManager {
  readonly shard: ShardIdentifier;
  readonly log: MemoryEventLog;
  readonly keys: MemoryIdempotencyKeys;
  /** What the shard's database holds; its other shards have the same. */
  readonly tables: MemoryTables;
  /** What happens on the way to the database. */
  readonly faults: MemoryFaults;
  readonly #nextPosition: () => number;

  /** @param nextPosition counts the commits of all databases of a driver */
  constructor(
    shard: ShardIdentifier,
    tables: MemoryTables,
    faults: MemoryFaults,
    nextPosition: () => number,
  ) {
    this.faults = faults;
    this.shard = shard;
    this.tables = tables;
    this.#nextPosition = nextPosition;
    this.log = new MemoryEventLog(this);
    this.keys = new MemoryIdempotencyKeys(this);
  }

  /** The rows of a table as the transaction sees them in which the caller runs. */
  rows(table: string): ReadonlyMap<string, MemoryRow> {
    const rows = this.tables.rows(table);
    const written = this.#joined()?.written.get(table);
    return written === undefined ? rows : new Map([...rows, ...written]);
  }

  /** Writes a row past actions and the log: within the transaction in which the caller runs, else at once. */
  write(table: string, row: MemoryRow): void {
    const open = this.#joined();
    if (open === undefined) {
      this.tables.rows(table).set(row.id, row);
      return;
    }
    const written = open.written.get(table) ?? new Map<string, MemoryRow>();
    open.written.set(table, written.set(row.id, row));
  }

  /** The events of the shard's database, in the order of the log. */
  events(): readonly DeliverableEvent[] {
    this.#joined();
    return this.tables.delivery.log.slice();
  }

  async inTransaction<T>(work: () => Promise<T>): Promise<T> {
    this.#assertOutside();
    const transaction: OpenTransaction = { written: new Map(), over: false };
    try {
      const result = await transactions.runWithin(this, transaction, work);
      for (const [table, written] of transaction.written) {
        for (const row of written.values()) this.tables.rows(table).set(row.id, row);
      }
      return result;
    } finally {
      transaction.over = true;
    }
  }

  async persist(changes: ChangeSet): Promise<PersistOutcome> {
    this.#assertOutside();
    try {
      return await this.faults.call('persist', this.shard, () =>
        applyChangeSet(this.tables, changes, this.#nextPosition),
      );
    } catch (error) {
      throw error instanceof ConnectionLost ? this.#unknown(changes, error) : error;
    }
  }

  async persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]> {
    this.#assertOutside();
    try {
      return await this.faults.call('persist-all', this.shard, () =>
        applyGroup(this.tables, group, this.#nextPosition),
      );
    } catch (error) {
      if (!(error instanceof ConnectionLost)) throw error;
      return group.map((changes) => this.#unknown(changes, error));
    }
  }

  isInTransaction(): boolean {
    return transactions.of(this) !== undefined;
  }

  /** True when the log holds the action; a write whose answer is lost is not under way any more. */
  async isCommitted(unknown: CommitOutcomeUnknownException): Promise<boolean> {
    try {
      return await this.faults.call('is-committed', this.shard, () => isCommitted(this.tables, unknown));
    } catch (error) {
      throw error instanceof ConnectionLost ? unknown : error;
    }
  }

  /** Reads something of the shard's database, as the transaction sees it in which the caller runs. */
  async read<T>(work: () => T, operation: 'read' | 'find-key' = 'read'): Promise<T> {
    try {
      return await this.faults.call(operation, this.shard, work);
    } catch (error) {
      if (!(error instanceof ConnectionLost)) throw error;
      throw new TransientStorageException(this.shard, error.message, { cause: error });
    }
  }

  #unknown({ action }: ChangeSet, cause: unknown): CommitOutcomeUnknownException {
    return new CommitOutcomeUnknownException(this.shard, action.id, { cause });
  }

  #joined(): OpenTransaction | undefined {
    const open = transactions.of(this);
    if (open?.over === true) throw new TransactionOverException(this.shard);
    return open;
  }

  #assertOutside(): void {
    if (this.#joined() !== undefined) throw new NestedTransactionException(this.shard);
  }
}

/** The manager of a shard as one in memory; throws InvariantViolation where the registry has another driver. */
export function memoryManager(manager: TransactionManager): MemoryTransactionManager {
  if (manager instanceof MemoryTransactionManager) return manager;
  throw new InvariantViolation(
    `${manager.shard.toString()} was not opened by memory(): MemoryRepository cannot read it`,
  );
}

/** Of the managers of one database: the one in whose transaction the caller runs, else the first. */
export function joinedManager(managers: readonly TransactionManager[]): MemoryTransactionManager {
  const own = managers.map(memoryManager);
  const joined = own.find((manager) => transactions.of(manager) !== undefined) ?? own[0];
  if (joined === undefined) throw new InvariantViolation('A database holds no shard');
  return joined;
}
