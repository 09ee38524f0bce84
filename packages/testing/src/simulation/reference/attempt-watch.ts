import { comparePositions } from '@framework/core/adapter';

import type { MemoryDeliveryTables, MemoryBlocked } from '../../memory/index.js';

/**
 * How a call of a handler failed: the failure `counts` as an attempt, is due to an `outage` and does not count, or is
 * `final`, so that no further attempt can succeed.
 */
export type CallFailure = 'counts' | 'outage' | 'final';

/** The attempts at an event since it was blocked or replayed. */
interface Attempts {
  /** The lease of the latest attempts. */
  lease: string;
  /** How many attempts were recorded under this lease, plus calls that started without a record. */
  begunCount: number;
  /** How many of them were recorded and have not led to a call yet: a process may end in between. */
  uncalledCount: number;
  /** How many calls failed because of this event, without an outage; those of a whole batch are not counted. */
  failedCount: number;
  /** How many attempts began under earlier leases. How they ended may be unknown, so each may or may not count. */
  beforeCount: number;
  isFinal: boolean;
}

/** The last known state of a blocked model. */
interface Seen {
  readonly row: MemoryBlocked;
  readonly text: string;
  /** The handler, and the event at the head. */
  readonly head: string;
  readonly dead: boolean;
  readonly openCount: number;
}

/**
 * Counts the attempts at the events of one database. No event may become a dead letter before it has had all its
 * attempts, and none may be tried again afterwards.
 */
export class AttemptWatch {
  readonly #tables: MemoryDeliveryTables;
  readonly #attemptsMaxOf: (handler: string) => number;
  readonly #violated: (text: string) => void;
  /** The attempts at each event, by handler and event. */
  readonly #attempts = new Map<string, Attempts>();
  readonly #seen = new Map<string, Seen>();
  #timeline: number;

  constructor(
    tables: MemoryDeliveryTables,
    attemptsMaxOf: (handler: string) => number,
    violated: (text: string) => void,
  ) {
    this.#tables = tables;
    this.#timeline = tables.timeline;
    this.#attemptsMaxOf = attemptsMaxOf;
    this.#violated = violated;
  }

  /**
   * Records the start of a call.
   *
   * @param lease the lease of the call; a lease that has lapsed in between counts as a new one
   * @returns a function to call when the call fails because of this event
   */
  begins(handler: string, eventId: string, lease: string): (failure: CallFailure) => void {
    const attempts = this.#attemptsAt(`${handler} ${eventId}`, lease);
    const max = this.#attemptsMaxOf(handler);
    if (attempts.failedCount >= max)
      this.#violated(`${handler} is called again with ${eventId} after ${max} failed attempts`);
    if (attempts.uncalledCount > 0) attempts.uncalledCount--;
    else attempts.begunCount++;
    attempts.isFinal = false;
    return (failure) => {
      // The call belongs to an earlier lease, and is counted already.
      if (attempts.lease !== lease) return;
      attempts.isFinal = failure === 'final';
      if (failure === 'counts') attempts.failedCount++;
    };
  }

  /** Records that an operator has replayed dead letters. */
  replayed(): void {
    for (const [key, { dead, head }] of this.#seen) {
      const row = this.#tables.blocked.get(key);
      if (!dead || row === undefined || row.dead) continue;
      this.#attempts.delete(head);
      this.#seen.set(key, this.#seenOf(row));
    }
  }

  /**
   * Checks the changes that a statement has made to blocked models.
   *
   * @param leaseOf the lease under which the sender of the statement may write a row
   * @param onWritten called with each row that the statement has added, changed or deleted
   */
  look(
    leaseOf: (row: MemoryBlocked) => string | undefined,
    onWritten: (row: MemoryBlocked) => void = () => undefined,
  ): void {
    const { blocked, timeline } = this.#tables;
    // No process wrote the changes that a failover made.
    const isSame = timeline === this.#timeline;
    this.#timeline = timeline;
    for (const [key, row] of blocked) {
      const now = this.#seenOf(row);
      const { head, dead } = now;
      const before = this.#seen.get(key);
      if (before?.text === now.text) continue;
      this.#seen.set(key, now);
      if (!isSame) continue;
      const seen = before?.head === head ? before : undefined;
      if (seen?.dead === true && !dead)
        this.#violated(`${head} is tried again, although it is a dead letter that nobody replayed`);
      if (now.openCount > (seen?.openCount ?? 0)) {
        const recorded = this.#attemptsAt(head, leaseOf(row));
        recorded.begunCount++;
        recorded.uncalledCount++;
      }
      if (dead && seen?.dead !== true) this.#judge(now, this.#attemptsAt(head, leaseOf(row)));
      onWritten(row);
    }
    if (this.#seen.size === blocked.size) return;
    for (const [key, { row }] of this.#seen) {
      if (blocked.has(key)) continue;
      this.#seen.delete(key);
      if (isSame) onWritten(row);
    }
  }

  #seenOf(row: MemoryBlocked): Seen {
    const { handler, position, dead, openAttempts, loneAttempts, attempts, uncounted, nextMs } = row;
    const first = this.#tables.log.find(
      (event) =>
        event.modelId === row.modelId &&
        event.modelName === row.modelName &&
        comparePositions(event, position) === 0,
    );
    const head = `${handler} ${row.event?.id ?? first?.id}`;
    const text = `${head} ${attempts} ${uncounted} ${dead} ${nextMs} ${[...openAttempts, '', ...loneAttempts].join()}`;
    return { row, text, head, dead, openCount: openAttempts.size };
  }

  #attemptsAt(key: string, lease?: string): Attempts {
    const known = this.#attempts.get(key);
    if (known !== undefined && (lease === undefined || known.lease === lease)) return known;
    const beforeCount = known === undefined ? 0 : known.beforeCount + known.begunCount;
    const none = { begunCount: 0, uncalledCount: 0, failedCount: 0, isFinal: false };
    const attempts: Attempts = { lease: lease ?? '', beforeCount, ...none };
    this.#attempts.set(key, attempts);
    return attempts;
  }

  #judge({ head, row: { handler, event } }: Seen, { beforeCount, failedCount, isFinal }: Attempts): void {
    const max = this.#attemptsMaxOf(handler);
    const count = beforeCount + failedCount;
    if (count < max && !isFinal)
      this.#violated(
        `${handler} gives up on ${event?.type} ${head} with ${max - count} of ${max} attempts left`,
      );
  }
}
