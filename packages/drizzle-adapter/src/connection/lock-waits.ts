import { type ShardIdentifier, ShardUnavailableException } from '@framework/core';

/** A write that waits for its place. */
interface Waiting {
  readonly keys: readonly string[];
  readonly begin: () => void;
}

/**
 * Lets few writes at a time wait for locks in a database, each on a connection of its own, and of those that need the same
 * row only one. The others wait here, where they cost no connection, so that locked rows, however many, leave connections for
 * everything else.
 *
 * Of a write that updates several rows nobody knows for which one it waits. So those that share a row wait for each other, but
 * a write that updates one of these rows alone does not wait for them.
 */
export class LockWaits {
  readonly #placesMax: number;
  readonly #waitMaxMs: number;
  readonly #waitingMax: number;
  #usedCount = 0;
  /** How many writes of one row wait for each row, here or in the database. */
  readonly #counts = new Map<string, number>();
  /** What writes that wait in the database need, see `keysOf`. */
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

  /** Whether somebody waits for one of the rows, so that it is locked. */
  hasOneOf(rows: readonly string[]): boolean {
    return rows.some((row) => this.#counts.has(row));
  }

  /**
   * Runs a write that may wait for a lock as long as a statement may take, when it is its turn.
   *
   * @param rows the ids of the rows that it updates
   * @throws ShardUnavailableException `shard-unavailable` when its turn does not come in time; nothing was written
   */
  async run<T>(shard: ShardIdentifier, rows: readonly string[], write: () => Promise<T>): Promise<T> {
    const keys = keysOf(rows);
    this.#count(rows, 1);
    try {
      await this.#place(shard, rows, keys);
      try {
        return await write();
      } finally {
        this.#giveUp(keys);
      }
    } finally {
      this.#count(rows, -1);
    }
  }

  #place(shard: ShardIdentifier, rows: readonly string[], keys: readonly string[]): Promise<void> {
    if (this.#isFree(keys)) {
      this.#take(keys);
      return Promise.resolve();
    }
    if (this.#waiting.size >= this.#waitingMax)
      throw lockedOut(shard, rows, `${this.#waitingMax} writes wait for locks already`);
    return new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(waiting);
        reject(lockedOut(shard, rows, `it was not this write's turn within ${this.#waitMaxMs} ms`));
      }, this.#waitMaxMs);
      const begin = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(waiting);
        this.#take(keys);
        resolve();
      };
      const waiting = { keys, begin };
      this.#waiting.add(waiting);
    });
  }

  #isFree(keys: readonly string[]): boolean {
    return this.#usedCount < this.#placesMax && !keys.some((key) => this.#taken.has(key));
  }

  #take(keys: readonly string[]): void {
    this.#usedCount++;
    for (const key of keys) this.#taken.add(key);
  }

  #giveUp(keys: readonly string[]): void {
    this.#usedCount--;
    for (const key of keys) this.#taken.delete(key);
    for (const waiting of this.#waiting) if (this.#isFree(waiting.keys)) waiting.begin();
  }

  #count([row, ...others]: readonly string[], change: 1 | -1): void {
    if (row === undefined || others.length > 0) return;
    const count = (this.#counts.get(row) ?? 0) + change;
    if (count === 0) this.#counts.delete(row);
    else this.#counts.set(row, count);
  }
}

/** What no two writes that wait in the database share. */
function keysOf(rows: readonly string[]): readonly string[] {
  return rows.length > 1 ? rows.map((row) => `${row} and others`) : rows;
}

function lockedOut(
  shard: ShardIdentifier,
  [row, ...others]: readonly string[],
  reason: string,
): ShardUnavailableException {
  const what = row === undefined || others.length > 0 ? 'a row that it needs' : `the row ${row}`;
  return new ShardUnavailableException(
    shard,
    `somebody else holds a lock on ${what}, and ${reason}: find who does in pg_locks and pg_stat_activity`,
  );
}
