import { type ShardIdentifier, ShardUnavailableException } from '@framework/core';

/** A write that waits for its place. */
interface Waiting {
  readonly row: string | undefined;
  readonly begin: () => void;
}

/**
 * Lets few writes at a time wait for locks in a database, each on a connection of its own, and of those that need the same
 * row only one. The others wait here, where they cost no connection, so that locked rows, however many, leave connections for
 * everything else.
 */
export class LockWaits {
  readonly #placesMax: number;
  readonly #waitMaxMs: number;
  readonly #waitingMax: number;
  #usedCount = 0;
  /** How many writes wait for each row, here or in the database. */
  readonly #counts = new Map<string, number>();
  /** Those that one waits for in the database. */
  readonly #taken = new Set<string>();
  readonly #waiting = new Set<Waiting>();

  /** @param limits.waitMaxMs is how long a write waits here; then it is refused */
  constructor(limits: {
    readonly placesMax: number;
    readonly waitMaxMs: number;
    readonly waitingMax: number;
  }) {
    this.#placesMax = limits.placesMax;
    this.#waitMaxMs = limits.waitMaxMs;
    this.#waitingMax = limits.waitingMax;
  }

  /** Whether a write waits for a row. */
  has(row: string | undefined): boolean {
    return row !== undefined && this.#counts.has(row);
  }

  /**
   * Runs a write that may wait for a lock as long as a statement may take, when it is its turn.
   *
   * @param row the id of the one row that it updates; `undefined` when it is not one
   * @throws ShardUnavailableException `shard-unavailable` when its turn does not come in time; nothing was written
   */
  async run<T>(shard: ShardIdentifier, row: string | undefined, write: () => Promise<T>): Promise<T> {
    this.#count(row, 1);
    try {
      await this.#place(shard, row);
      try {
        return await write();
      } finally {
        this.#giveUp(row);
      }
    } finally {
      this.#count(row, -1);
    }
  }

  #place(shard: ShardIdentifier, row: string | undefined): Promise<void> {
    if (this.#isFree(row)) {
      this.#take(row);
      return Promise.resolve();
    }
    if (this.#waiting.size >= this.#waitingMax)
      throw lockedOut(shard, row, `${this.#waitingMax} writes wait for locks already`);
    return new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(waiting);
        reject(lockedOut(shard, row, `it was not this write's turn within ${this.#waitMaxMs} ms`));
      }, this.#waitMaxMs);
      const begin = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(waiting);
        this.#take(row);
        resolve();
      };
      const waiting = { row, begin };
      this.#waiting.add(waiting);
    });
  }

  #isFree(row: string | undefined): boolean {
    return this.#usedCount < this.#placesMax && (row === undefined || !this.#taken.has(row));
  }

  #take(row: string | undefined): void {
    this.#usedCount++;
    if (row !== undefined) this.#taken.add(row);
  }

  #giveUp(row: string | undefined): void {
    this.#usedCount--;
    if (row !== undefined) this.#taken.delete(row);
    for (const waiting of this.#waiting) if (this.#isFree(waiting.row)) waiting.begin();
  }

  #count(row: string | undefined, change: 1 | -1): void {
    if (row === undefined) return;
    const count = (this.#counts.get(row) ?? 0) + change;
    if (count === 0) this.#counts.delete(row);
    else this.#counts.set(row, count);
  }
}

function lockedOut(
  shard: ShardIdentifier,
  row: string | undefined,
  reason: string,
): ShardUnavailableException {
  const what = row === undefined ? 'a row that it needs' : `the row ${row}`;
  return new ShardUnavailableException(
    shard,
    `somebody else holds a lock on ${what}, and ${reason}: find who does in pg_locks and pg_stat_activity`,
  );
}
