import {
  CommitOutcomeUnknownError,
  InvalidCursorError,
  InvariantViolationError,
  type Page,
  type ShardIdentifier,
} from '@framework/core';
import {
  type ChangeSet,
  type DeliverableEvent,
  type EventLog,
  type GroupOutcome,
  type IdempotencyKeys,
  type LoggedEvent,
  NestedTransactionError,
  OpenTransactions,
  type PersistOptions,
  type PersistOutcome,
  type TransactionManager,
  TransactionOverError,
  pageSize,
} from '@framework/core/adapter';

import { applyChangeSet, applyGroup, isCommitted } from './apply-change-set.js';
import {
  ConnectionLostError,
  type MemoryFaults,
  type MemoryOperation,
  type MemoryRequest,
} from './memory-faults.js';
import { MemoryIdempotencyKeys } from './memory-idempotency-keys.js';
import { type MemoryRow, faithfulCopy } from './memory-row.js';
import type { MemoryReads, MemoryTables } from './memory-tables.js';

/** The transaction in which the caller runs. */
interface OpenTransaction {
  /** Its uncommitted writes, by table and id. */
  readonly written: Map<string, Map<string, MemoryRow>>;
  /** Whether it has ended; work that it started may still be running. */
  over: boolean;
}

/** A write whose outcome is unknown, with what is needed to find out whether and when it arrived. */
class SentWrite {
  /** The history of the database to which it was sent. */
  readonly timeline: number;
  /** Resolves when it arrives, if it has not arrived yet. */
  readonly arrival: Promise<void> | undefined;

  constructor(timeline: number, arrival: Promise<void> | undefined) {
    this.timeline = timeline;
    this.arrival = arrival;
  }
}

const transactions = new OpenTransactions<OpenTransaction>();

/** The transactions of one shard in memory. */
export class MemoryTransactionManager implements TransactionManager {
  readonly shard: ShardIdentifier;
  readonly log: EventLog;
  readonly keys: IdempotencyKeys;
  /** The contents of the shard's database, shared with its other shards. */
  readonly tables: MemoryTables;
  /** The faults on the way to the database. */
  readonly faults: MemoryFaults;

  constructor(shard: ShardIdentifier, tables: MemoryTables, faults: MemoryFaults) {
    this.faults = faults;
    this.shard = shard;
    this.tables = tables;
    this.log = new MemoryEventLog(this);
    this.keys = new MemoryIdempotencyKeys(this);
  }

  /** The rows of a table, as seen by the caller's transaction. */
  rows(table: string): ReadonlyMap<string, MemoryRow> {
    const rows = this.tables.rows(table);
    const written = this.#joined()?.written.get(table);
    return written === undefined ? rows : new Map([...rows, ...written]);
  }

  /** Writes a row without an action or event: within the caller's transaction if there is one, otherwise at once. */
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

  /**
   * Runs work in one transaction. Its rows become visible to others all at once, when the work resolves.
   *
   * @throws NestedTransactionError `nested-transaction` inside another one on the same shard
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when a fault loses the request or the answer of the commit
   */
  async inTransaction<T>(work: () => Promise<T>): Promise<T> {
    this.#assertOutside();
    const transaction: OpenTransaction = { written: new Map(), over: false };
    try {
      const result = await transactions.runWithin(this, transaction, work);
      await this.#send(
        { operation: 'commit' },
        () => {
          for (const [table, written] of transaction.written)
            for (const row of written.values()) this.tables.rows(table).set(row.id, row);
        },
        (sent, cause) => {
          throw this.#unknown(undefined, sent, cause);
        },
      );
      return result;
    } finally {
      transaction.over = true;
    }
  }

  /** Writes a change set, with its events and its key, at one instant; throws like {@link TransactionManager.persist}. */
  async persist(changes: ChangeSet, options?: PersistOptions): Promise<PersistOutcome> {
    this.#assertOutside();
    return this.#send(
      { operation: 'persist', changes: [changes], options },
      () => applyChangeSet(this.tables, changes),
      (sent, cause) => {
        throw this.#unknown(changes.action.id, sent, cause);
      },
    );
  }

  /** Writes change sets at one instant; throws like {@link TransactionManager.persistAll}. */
  async persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]> {
    this.#assertOutside();
    return this.#send(
      { operation: 'persist-all', changes: group },
      () => applyGroup(this.tables, group),
      (sent, cause) => group.map(({ action }) => this.#unknown(action.id, sent, cause)),
    );
  }

  /** Whether the caller runs within {@link inTransaction} of this shard. */
  isInTransaction(): boolean {
    return transactions.of(this) !== undefined;
  }

  /**
   * Looks up whether a commit has happened, once its request has arrived or been lost.
   *
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when a fault loses the question, or when the commit is not in the
   * log and the error does not show that it was sent to the current history of the database
   */
  async isCommitted(unknown: CommitOutcomeUnknownError): Promise<boolean> {
    const sent = unknown.session instanceof SentWrite ? unknown.session : undefined;
    await sent?.arrival;
    try {
      const is = await this.faults.call({ operation: 'is-committed', shard: this.shard }, () => ({
        there: isCommitted(this.tables, unknown),
        decided: sent?.timeline === this.timeline,
      }));
      if (is.there || is.decided) return is.there;
    } catch (error) {
      throw error instanceof ConnectionLostError ? unknown : error;
    }
    throw unknown;
  }

  /** Reads from the shard's database, as seen by the caller's transaction. */
  read<T>(work: () => T, operation: MemoryOperation = 'read', waitMs?: number): Promise<T> {
    return this.faults.ask({ operation, shard: this.shard, waitMs }, work);
  }

  get timeline(): number {
    return this.tables.delivery.timeline;
  }

  /** Carries out a write. A write that was sent to another history does not arrive in this one. */
  async #send<T>(
    request: Omit<MemoryRequest, 'shard'>,
    work: () => T,
    onLost: (sent: SentWrite, cause: ConnectionLostError) => T,
  ): Promise<T> {
    let timeline = this.timeline;
    let isLost = false;
    try {
      return await this.faults.call({ ...request, shard: this.shard }, () => {
        if (isLost && timeline !== this.timeline)
          throw new InvariantViolationError(
            'The write was sent to another history of the database, and is lost',
          );
        timeline = this.timeline;
        return work();
      });
    } catch (error) {
      if (!(error instanceof ConnectionLostError)) throw error;
      isLost = true;
      return onLost(new SentWrite(timeline, error.arrival), error);
    }
  }

  #unknown(
    actionId: string | undefined,
    session: SentWrite,
    cause: ConnectionLostError,
  ): CommitOutcomeUnknownError {
    return new CommitOutcomeUnknownError(this.shard, actionId, { session, cause });
  }

  #joined(): OpenTransaction | undefined {
    const open = transactions.of(this);
    if (open?.over === true) throw new TransactionOverError(this.shard);
    return open;
  }

  #assertOutside(): void {
    if (this.#joined() !== undefined) throw new NestedTransactionError(this.shard);
  }
}

/** Narrows a shard's manager to one in memory; throws InvariantViolationError if another driver opened the shard. */
export function memoryManager(manager: TransactionManager): MemoryTransactionManager {
  if (manager instanceof MemoryTransactionManager) return manager;
  throw new InvariantViolationError(
    `${manager.shard.toString()} was not opened by memory(): MemoryRepository can read only databases that were`,
  );
}

/** Of the managers of one database, returns the one in whose transaction the caller runs, otherwise the first. */
export function joinedManager(managers: readonly TransactionManager[]): MemoryTransactionManager {
  const own = managers.map(memoryManager);
  const joined = own.find((manager) => transactions.of(manager) !== undefined) ?? own[0];
  if (joined === undefined)
    throw new InvariantViolationError('There are no managers: pass those of all shards of a database');
  return joined;
}

/** The log of one shard in memory. */
class MemoryEventLog implements EventLog {
  readonly #manager: MemoryReads;

  constructor(manager: MemoryReads) {
    this.#manager = manager;
  }

  async findByModel(
    model: { readonly name: string; readonly id: string },
    { limit, after }: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<LoggedEvent>> {
    const size = pageSize(limit);
    const [version, ordinal] = after === undefined ? [0, 0] : parseCursor(after);
    const logged = await this.#manager.read(() => this.#manager.events(), 'find-events');
    const events = logged
      .filter(({ modelId, modelName }) => modelId === model.id && modelName === model.name)
      .sort((one, other) => one.modelVersion - other.modelVersion || one.ordinal - other.ordinal)
      .filter(
        (event) =>
          event.modelVersion > version || (event.modelVersion === version && event.ordinal > ordinal),
      );
    const items = events.slice(0, size).map(loggedEvent);
    const last = items.at(-1);
    const next =
      events.length > size && last !== undefined ? `${last.modelVersion}.${last.ordinal}` : undefined;
    return { items, next };
  }
}

function parseCursor(cursor: string): readonly [version: number, ordinal: number] {
  const [, version, ordinal] = /^(\d{1,15})\.(\d{1,9})$/.exec(cursor) ?? [];
  if (version === undefined || ordinal === undefined) throw new InvalidCursorError(cursor);
  return [Number(version), Number(ordinal)];
}

function loggedEvent(event: LoggedEvent): LoggedEvent {
  return {
    id: event.id,
    actionId: event.actionId,
    actionName: event.actionName,
    principal: event.principal,
    ordinal: event.ordinal,
    modelId: event.modelId,
    modelName: event.modelName,
    modelVersion: event.modelVersion,
    type: event.type,
    payload: faithfulCopy(event.payload, event.type),
    createdDate: event.createdDate,
  };
}
