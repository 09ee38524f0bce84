import { type ShardIdentifier, ShardUnavailableError, StaleRecordError } from '@framework/core';

import type { DatabasePlace } from './not-ready-error.js';
import { isCancelled, isLockTimeout } from './storage-error.js';

/** How many places urgent writes take at most: a handler has more for its events, and needs some for those whose rows are free. */
const urgentPlacesMax = 4;
/** How many urgent writes there are at most, also those that wait for a place: each keeps a place of a handler meanwhile. */
const urgentMax = 8;

/** A write that waits for its turn, or has it. */
interface LockedWrite {
  readonly keys: readonly string[];
  /** Resolves when it is its turn, with whether it may wait for a moment only; `undefined` while it has it. */
  turn: PromiseWithResolvers<boolean> | undefined;
  /** When it last found a lock in its way, in the order of all; 0 when its row is known to be free by now. */
  lockedTurn: number;
  /** Whether it does not wait as long as others do, nor behind another such write. */
  readonly isUrgent: boolean;
  /** How long it waits for its turns in all, and until when. */
  readonly waitMaxMs: number;
  readonly untilMs: number;
}

/**
 * Lets few writes at a time wait for locks in a database, each on a connection of its own, and of those that need the same
 * row only one. The others wait here, where they cost no connection, so that locked rows, however many, leave connections for
 * everything else.
 *
 * Writes that need the same row go in the order in which they came. Those that find all places taken are tried for a moment,
 * one at a time and in turn: what they need may be free by now, while the rows of the others stay locked.
 *
 * Of a write that updates several rows nobody knows for which one it waits. So those that share a row wait for each other, but
 * a write that updates one of these rows alone does not wait for them.
 */
export class LockWaits {
  readonly #placesMax: number;
  /** Whether there is a connection left for everything else beside the places and the one that is tried. */
  readonly #mayTry: boolean;
  readonly #waitMaxMs: number;
  readonly #waitingMax: number;
  readonly #place: Pick<DatabasePlace, 'of'>;
  /** In the order in which they came. */
  readonly #writes = new Set<LockedWrite>();
  /** How many writes of one row there are for each row. */
  readonly #counts = new Map<string, number>();
  #placedCount = 0;
  /** How many of those with a place are urgent. */
  #urgentCount = 0;
  #isTrying = false;
  #lockedTurns = 0;

  /**
   * @param options.poolMax is how many connections there are, of which half are places
   * @param options.waitMaxMs is how long a write waits here; then it is refused
   * @param options.place says where that was
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

  /** Whether somebody waits for one of the rows, so that it is locked as far as is known. */
  hasOneOf(rows: readonly string[]): boolean {
    return rows.some((row) => this.#counts.has(row));
  }

  /**
   * Runs a write that has found a lock in its way, when it is its turn; again while it was brief and that was too short.
   *
   * @param rows the ids of the rows that it updates
   * @param write waits for a lock for a moment when it is to be brief, else as long as a statement may take
   * @param flushSoonMs is how long it waits for its turn, where that is not as long as others do; not at all while another such
   *   write waits for the same row, or many wait for others
   * @throws ShardUnavailableError `shard-unavailable` when its turn, or the lock, does not come in time; nothing was written
   */
  async run<T>(
    shard: ShardIdentifier,
    rows: readonly string[],
    write: (isBrief: boolean) => Promise<T>,
    flushSoonMs?: number,
  ): Promise<T> {
    const keys = keysOf(rows);
    const isUrgent = flushSoonMs !== undefined;
    const refusal = isUrgent ? this.#urgentRefusal(keys) : undefined;
    if (refusal !== undefined) throw this.#lockedOut(shard, rows, refusal);
    const waitMaxMs = flushSoonMs ?? this.#waitMaxMs;
    const own: LockedWrite = {
      keys,
      isUrgent,
      turn: undefined,
      lockedTurn: ++this.#lockedTurns,
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
            const reason = 'this write was given up when its time for a statement was over';
            throw this.#lockedOut(shard, rows, reason, { isCertain: false, cause: error.cause });
          }
          if (!isBrief || !isLockTimeout(error)) throw error;
          own.lockedTurn = ++this.#lockedTurns;
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

  /** Why no further urgent write is to wait for these rows; `undefined` when one may. */
  #urgentRefusal(keys: readonly string[]): string | undefined {
    const urgent = [...this.#writes].filter((write) => write.isUrgent);
    if (urgent.some((write) => write.keys.some((key) => keys.includes(key))))
      return 'another write that is tried again later waits for it already';
    if (urgent.length < urgentMax) return undefined;
    return `${urgentMax} writes that are tried again later wait for locks already`;
  }

  /** Resolves when it is its turn, with whether it is to be brief. */
  async #turnOf(own: LockedWrite, refusal: (reason: string) => Error): Promise<boolean> {
    const turn = Promise.withResolvers<boolean>();
    const refuse = (reason: string): void => {
      own.turn = undefined;
      turn.reject(refusal(reason));
    };
    const refuseLate = (): void => refuse(`it was not this write's turn within ${own.waitMaxMs} ms`);
    const leftMs = Math.max(0, own.untilMs - performance.now());
    const timer = setTimeout(refuseLate, leftMs);
    own.turn = turn;
    if (leftMs > 0) this.#goOn();
    else refuseLate();
    if (own.turn !== undefined && this.#writes.size - this.#placedCount > this.#waitingMax)
      refuse(`${this.#waitingMax} writes wait for locks already`);
    try {
      return await turn.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Lets those go whose rows nobody before them needs: to a place while there are any, else one of them for a moment. */
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
      } else if (longest === undefined || write.lockedTurn < longest.lockedTurn) {
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

  /** Others that need a row of this write do not wait behind those whose rows stay locked. */
  #showFree({ keys }: LockedWrite): void {
    for (const write of this.#writes) if (write.keys.some((key) => keys.includes(key))) write.lockedTurn = 0;
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
      `somebody else ${isCertain ? 'holds' : 'may hold'} a lock on ${what}, and ${reason}: find who does in pg_locks ` +
        'and pg_stat_activity',
      { place: this.#place.of(shard), kind: 'locked', cause },
    );
  }
}

function begin(write: LockedWrite, isBrief: boolean): void {
  write.turn?.resolve(isBrief);
  write.turn = undefined;
}

/** What no two writes that wait in the database share. */
function keysOf(rows: readonly string[]): readonly string[] {
  return rows.length > 1 ? rows.map((row) => `${row} and others`) : rows;
}
