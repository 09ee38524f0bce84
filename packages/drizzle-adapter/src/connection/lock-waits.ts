import { type ShardIdentifier, ShardUnavailableError, StaleRecordError } from '@framework/core';

import type { DatabasePlace } from './not-ready-error.js';
import { isCancelled, isLockTimeout } from './storage-error.js';

/** How many places urgent writes may take; the others stay free for writes that are not urgent. */
const urgentPlacesMax = 4;
/**
 * How many urgent writes there may be, including those that wait for a place. Meanwhile, each occupies one of a
 * handler's calls.
 */
const urgentMax = 8;

/** A write that waits for its turn or is running. */
interface LockedWrite {
  readonly keys: readonly string[];
  /** Resolves when its turn comes, with whether the attempt must be brief; `undefined` while the write runs. */
  turn: PromiseWithResolvers<boolean> | undefined;
  /** A counter value that says when it last ran into a lock; 0 when its row is known to be free by now. */
  lockAttempt: number;
  /** Whether it waits for a shorter time than others, and never behind another urgent write for the same row. */
  readonly isUrgent: boolean;
  /** How long it waits for its turns in total. */
  readonly waitMaxMs: number;
  /** When that time is over, by `performance.now()`. */
  readonly untilMs: number;
}

/**
 * Limits how many writes wait for row locks in the database, each on its own connection, and lets only one write per
 * row wait there. All others wait in this process, where they need no connection. So locked rows, however many, always
 * leave connections for other work.
 *
 * Writes of the same row run in the order in which they arrived. When all places are taken, the remaining writes take
 * turns to run one brief attempt at a time: their row may be free by now, even if the rows of the writes before them
 * stay locked.
 *
 * When a write updates several rows, nobody knows which one it waits for. So two such writes that share a row wait for
 * each other, but a write of only one of these rows does not wait for them.
 */
export class LockWaits {
  readonly #placesMax: number;
  /** Whether a connection remains for other work besides the places and the brief attempt. */
  readonly #mayTry: boolean;
  readonly #waitMaxMs: number;
  readonly #waitingMax: number;
  readonly #place: Pick<DatabasePlace, 'of'>;
  /** The writes that wait or run, in order of arrival. */
  readonly #writes = new Set<LockedWrite>();
  /** How many single-row writes wait for each row. */
  readonly #counts = new Map<string, number>();
  #placedCount = 0;
  /** How many of the writes that hold a place are urgent. */
  #urgentCount = 0;
  #isTrying = false;
  #lockAttempts = 0;

  /**
   * @param options.poolMax the size of the pool; half of its connections are places
   * @param options.waitMaxMs how long a write may wait here before it is refused
   * @param options.place names the shard and database in errors
   */
  constructor(options: {
    readonly poolMax: number;
    readonly waitMaxMs: number;
    readonly waitingMax: number;
    readonly place: Pick<DatabasePlace, 'of'>;
  }) {
    this.#placesMax = Math.max(1, Math.floor(options.poolMax / 2));
    this.#mayTry = options.poolMax > this.#placesMax + 1;
    this.#waitMaxMs = options.waitMaxMs;
    this.#waitingMax = options.waitingMax;
    this.#place = options.place;
  }

  /** Whether a write waits for one of these rows, which is therefore probably locked. */
  hasOneOf(rows: readonly string[]): boolean {
    return rows.some((row) => this.#counts.has(row));
  }

  /**
   * Runs a write that ran into a lock, once its turn comes. A brief attempt that meets the lock again goes back to
   * waiting.
   *
   * @param rows the ids of the rows that it updates
   * @param write a brief attempt waits for the lock only briefly, any other one until its statement times out
   * @param urgentWaitMs marks the write as urgent, and says how long it may wait for its turn. An urgent write is
   * refused at once when another urgent one waits for the same row, or when there are too many of them
   * @throws ShardUnavailableError `shard-unavailable` when its turn or the lock does not come in time; nothing was
   * written
   */
  async run<T>(
    shard: ShardIdentifier,
    rows: readonly string[],
    write: (isBrief: boolean) => Promise<T>,
    urgentWaitMs?: number,
  ): Promise<T> {
    const keys = keysOf(rows);
    const isUrgent = urgentWaitMs !== undefined;
    const refusal = isUrgent ? this.#urgentRefusal(keys) : undefined;
    if (refusal !== undefined) throw this.#lockedOut(shard, rows, refusal);
    const waitMaxMs = urgentWaitMs ?? this.#waitMaxMs;
    const own: LockedWrite = {
      keys,
      isUrgent,
      turn: undefined,
      lockAttempt: ++this.#lockAttempts,
      waitMaxMs,
      untilMs: performance.now() + waitMaxMs,
    };
    this.#count(rows, 1);
    this.#writes.add(own);
    try {
      for (;;) {
        const isBrief = await this.#turnOf(own, (reason) => this.#lockedOut(shard, rows, reason));
        try {
          const result = await write(isBrief);
          this.#showFree(own);
          return result;
        } catch (error) {
          if (error instanceof StaleRecordError) this.#showFree(own);
          if (error instanceof Error && isCancelled(error)) {
            const reason = 'the server cancelled this write after the statement timeout';
            throw this.#lockedOut(shard, rows, reason, { isCertain: false, cause: error.cause });
          }
          if (!isBrief || !isLockTimeout(error)) throw error;
          own.lockAttempt = ++this.#lockAttempts;
        } finally {
          if (isBrief) this.#isTrying = false;
          else this.#countPlaced(own, -1);
        }
      }
    } finally {
      this.#writes.delete(own);
      this.#count(rows, -1);
      this.#goOn();
    }
  }

  /** Why a further urgent write for these rows is refused; `undefined` when it may wait. */
  #urgentRefusal(keys: readonly string[]): string | undefined {
    const urgent = [...this.#writes].filter((write) => write.isUrgent);
    if (urgent.some((write) => write.keys.some((key) => keys.includes(key))))
      return 'another write that would be retried anyway already waits for it';
    if (urgent.length < urgentMax) return undefined;
    return `${urgentMax} writes that would be retried anyway already wait for locks`;
  }

  /** Resolves when the write's turn comes, with whether the attempt must be brief. */
  async #turnOf(own: LockedWrite, refusal: (reason: string) => Error): Promise<boolean> {
    const turn = Promise.withResolvers<boolean>();
    const refuse = (reason: string): void => {
      own.turn = undefined;
      turn.reject(refusal(reason));
    };
    const refuseLate = (): void => refuse(`this write did not get its turn within ${own.waitMaxMs} ms`);
    const leftMs = Math.max(0, own.untilMs - performance.now());
    const timer = setTimeout(refuseLate, leftMs);
    own.turn = turn;
    if (leftMs > 0) this.#goOn();
    else refuseLate();
    if (own.turn !== undefined && this.#writes.size - this.#placedCount > this.#waitingMax)
      refuse(`${this.#waitingMax} writes already wait for locks`);
    try {
      return await turn.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Starts writes whose rows no earlier write needs: each in a place while any are free, and one more as a brief
   * attempt.
   */
  #goOn(): void {
    const needed = new Set<string>();
    let longest: LockedWrite | undefined;
    for (const write of this.#writes) {
      const isNext = write.turn !== undefined && !write.keys.some((key) => needed.has(key));
      for (const key of write.keys) needed.add(key);
      if (!isNext) continue;
      if (this.#hasPlaceFor(write)) {
        this.#countPlaced(write, 1);
        begin(write, false);
      } else if (longest === undefined || write.lockAttempt < longest.lockAttempt) {
        longest = write;
      }
    }
    if (longest === undefined || this.#isTrying || !this.#mayTry) return;
    this.#isTrying = true;
    begin(longest, true);
  }

  #hasPlaceFor({ isUrgent }: LockedWrite): boolean {
    if (isUrgent && this.#urgentCount >= urgentPlacesMax) return false;
    return this.#placedCount < this.#placesMax;
  }

  #countPlaced({ isUrgent }: LockedWrite, change: 1 | -1): void {
    this.#placedCount += change;
    if (isUrgent) this.#urgentCount += change;
  }

  /**
   * A write that succeeded shows that its rows are free, so writes that need them move ahead of those whose rows stay
   * locked.
   */
  #showFree({ keys }: LockedWrite): void {
    for (const write of this.#writes) if (write.keys.some((key) => keys.includes(key))) write.lockAttempt = 0;
  }

  #count([row, ...others]: readonly string[], change: 1 | -1): void {
    if (row === undefined || others.length > 0) return;
    const count = (this.#counts.get(row) ?? 0) + change;
    if (count === 0) this.#counts.delete(row);
    else this.#counts.set(row, count);
  }

  #lockedOut(
    shard: ShardIdentifier,
    [row, ...others]: readonly string[],
    reason: string,
    { isCertain = true, cause }: { readonly isCertain?: boolean; readonly cause?: unknown } = {},
  ): ShardUnavailableError {
    const what = row === undefined || others.length > 0 ? 'a row that it needs' : `the row ${row}`;
    return new ShardUnavailableError(
      shard,
      `another session ${isCertain ? 'holds' : 'may hold'} a lock on ${what}, and ${reason}: look for it in pg_locks ` +
        'and pg_stat_activity',
      { place: this.#place.of(shard), kind: 'locked', cause },
    );
  }
}

function begin(write: LockedWrite, isBrief: boolean): void {
  write.turn?.resolve(isBrief);
  write.turn = undefined;
}

/** The lock keys of a write: two writes with a common key never wait in the database at the same time. */
function keysOf(rows: readonly string[]): readonly string[] {
  return rows.length > 1 ? rows.map((row) => `${row} and others`) : rows;
}
