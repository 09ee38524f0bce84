import type { Cursor, EventBatch, HandlerCursor } from '@framework/core/adapter';
import {
  type LogEvent,
  type LogPlace,
  type Snapshot,
  byPosition,
  formatPlace,
  parsePlace,
} from '@framework/drizzle-adapter/log';

import { isVisible, isVisibleUpTo, withTransactions } from './snapshot.js';

/** A committed transaction that wrote to the log, as the stream delivers it. */
export interface StreamedTransaction {
  readonly xid: bigint;
  /** Where its commit is in the write-ahead log: a stream that begins there delivers it. */
  readonly commitLsn: bigint;
  /** Its events in the order in which they were written; none if its action attached none. */
  readonly rows: readonly LogEvent[];
  /** How much memory these take, approximately. */
  readonly bytes: number;
}

/** How much of the log is kept in memory. */
export interface TailLimits {
  readonly transactionsMax: number;
  readonly bytesMax: number;
}

const tailLimits: TailLimits = { transactionsMax: 50_000, bytesMax: 32 * 1_048_576 };

/**
 * How many transactions may be in progress at a cursor of the tail. Those that wrote no events are never streamed, so they seem to be
 * in progress; a cursor with too many of them is replaced by one that was read with SQL.
 */
const inProgressMax = 256;

/** The maximum number of cursors that are kept; each handler has at most one per slot. */
const knownMax = 64;

interface KnownCursor {
  /** The number of the first transaction that it may not see. */
  readonly next: number;
  /** The check after which it was last read with SQL. */
  readonly check: number;
}

/**
 * The end of the log in memory, in the order of commits, as one stream delivers it.
 *
 * It begins at a transaction number: whatever has this number or a higher one was committed after the stream began, so it is in the
 * tail or will be. A cursor that sees everything below that number can therefore be read from the tail, all others with SQL.
 *
 * The cursor after a read sees what the cursor before it saw, and the transactions that the stream has delivered; never one that only
 * ought to have been delivered. If the stream lacked a transaction, it would still be in progress at the cursor, and the next read with
 * SQL would find it: the tail can be late, but it cannot skip anything.
 */
export class LogTail {
  readonly #place: Pick<LogPlace, 'epoch' | 'history'>;
  readonly #limits: TailLimits;
  /** Ordered by commit; the first ones are released. */
  readonly #transactions: StreamedTransaction[] = [];
  /** How many are released: their events may be handed out. */
  #releasedCount = 0;
  /** The number of the first one that is kept; all that were ever added are numbered from 0. */
  #firstNumber = 0;
  #bytes = 0;
  /** Which part of its limits was added since it was last settled. */
  #addedPart = 0;
  #firstXid: bigint | undefined;
  #check = 0;
  readonly #known = new Map<Cursor, KnownCursor>();

  constructor(place: Pick<LogPlace, 'epoch' | 'history'>, limits: TailLimits = tailLimits) {
    this.#place = place;
    this.#limits = limits;
  }

  /** Begins at a transaction number that was assigned after the first transaction could have been added. */
  begin(xid: bigint): void {
    this.#firstXid = xid;
  }

  /** Whether anything is read from it yet. */
  get isServing(): boolean {
    return this.#known.size > 0;
  }

  /** Whether transactions wait for {@link release}. */
  get isPending(): boolean {
    return this.#releasedCount < this.#transactions.length;
  }

  /** Whether it has become too large: it must be replaced by one that begins later. */
  get isFull(): boolean {
    const { transactionsMax, bytesMax } = this.#limits;
    return this.#transactions.length > transactionsMax || this.#bytes > bytesMax;
  }

  /** Whether {@link settle} should be called, so that it does not become full with what is no longer needed. */
  get needsSettling(): boolean {
    return this.#addedPart > 0.5;
  }

  /** How many are kept. */
  get size(): number {
    return this.#transactions.length;
  }

  /** Adds the next transaction of the stream. */
  add(transaction: StreamedTransaction): void {
    this.#transactions.push(transaction);
    this.#bytes += transaction.bytes;
    this.#addedPart += Math.max(1 / this.#limits.transactionsMax, transaction.bytes / this.#limits.bytesMax);
  }

  /**
   * Lets transactions be handed out that readers with SQL can see, in the order of commits. A commit is streamed before others can see
   * it: with synchronous replication long before, and then a failover may still lose it.
   *
   * @returns whether there were any
   */
  release(snapshot: Snapshot): boolean {
    const before = this.#releasedCount;
    for (const { xid } of this.#transactions.slice(before)) {
      if (!isVisible(snapshot, xid)) break;
      this.#releasedCount++;
    }
    return this.#releasedCount > before;
  }

  /** From now on, each cursor must be read with SQL once more, before it is read from the tail again. */
  requireCheck(): void {
    this.#check++;
  }

  /** The number of the last check, to be taken before a read with SQL and passed to {@link adopt}. */
  get check(): number {
    return this.#check;
  }

  /** Takes over a cursor that was read with SQL, if the tail has everything after it. */
  adopt(cursor: Cursor, check: number): void {
    if (this.#covers(parsePlace(cursor))) this.#remember(cursor, { next: this.#firstNumber, check });
  }

  /**
   * Reads on from a cursor; `undefined` if that must be done with SQL.
   *
   * @param limit the maximum number of events; a transaction is never cut
   */
  read(slots: readonly number[], cursor: Cursor, limit: number): EventBatch | undefined {
    const known = this.#known.get(cursor);
    if (known === undefined || known.check !== this.#check) return undefined;
    const place = parsePlace(cursor);
    const { snapshot } = place;
    const events: LogEvent[] = [];
    const xids: bigint[] = [];
    const end = this.#firstNumber + this.#releasedCount;
    let next = Math.max(known.next, this.#firstNumber);
    for (; next < end; next++) {
      const transaction = this.#transactions[next - this.#firstNumber];
      if (transaction === undefined) break;
      if (isVisible(snapshot, transaction.xid)) continue;
      const rows = transaction.rows.filter(({ slot }) => slots.includes(slot));
      if (rows.length > limit) return undefined;
      if (events.length + rows.length > limit) break;
      events.push(...rows);
      xids.push(transaction.xid);
    }
    const after = withTransactions(snapshot, xids, inProgressMax);
    if (after === undefined) return undefined;
    const moved = xids.length === 0 ? cursor : formatPlace({ ...place, snapshot: after });
    this.#remember(moved, { next, check: known.check });
    return { events: events.sort(byPosition), next: moved, more: next < end };
  }

  /**
   * Drops what no cursor needs any more, given the saved cursors of the handler in all slots.
   *
   * @param receivedLsn what the stream had delivered before the cursors were read
   * @returns up to where the write-ahead log is no longer needed; `undefined` when that is not known yet
   */
  settle(saved: readonly HandlerCursor[], receivedLsn: bigint): bigint | undefined {
    this.#addedPart = 0;
    const snapshots = new Map<number, Snapshot>();
    for (const { slot, cursor } of saved) {
      const place = parsePlace(cursor);
      if (!this.#covers(place)) return undefined;
      snapshots.set(slot, place.snapshot);
    }
    const isSettled = ({ xid, rows }: StreamedTransaction): boolean =>
      rows.every(({ slot }) => {
        const snapshot = snapshots.get(slot);
        return snapshot !== undefined && isVisible(snapshot, xid);
      });
    const released = this.#transactions.slice(0, this.#releasedCount);
    const count = indexOfFirst(released, (each) => !isSettled(each));
    for (const { bytes } of this.#transactions.splice(0, count)) this.#bytes -= bytes;
    this.#firstNumber += count;
    this.#releasedCount -= count;
    return this.#transactions[0]?.commitLsn ?? receivedLsn;
  }

  /** Whether everything that a place does not see is in the tail, or will be. */
  #covers({ epoch, history, part, snapshot }: LogPlace): boolean {
    const first = this.#firstXid;
    if (first === undefined || part !== undefined) return false;
    if (epoch !== this.#place.epoch || history !== this.#place.history) return false;
    return isVisibleUpTo(snapshot, first);
  }

  #remember(cursor: Cursor, known: KnownCursor): void {
    this.#known.delete(cursor);
    this.#known.set(cursor, known);
    const [oldest] = this.#known.keys();
    if (this.#known.size > knownMax && oldest !== undefined) this.#known.delete(oldest);
  }
}

/** The index of the first item that meets a condition, or how many items there are. */
function indexOfFirst<T>(items: readonly T[], condition: (item: T) => boolean): number {
  const index = items.findIndex(condition);
  return index < 0 ? items.length : index;
}
