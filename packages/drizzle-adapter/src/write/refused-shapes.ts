import type pg from 'pg';
import { isRefusal } from '../connection/server-error.js';
import type { RowShape } from './row.js';

/** How long a shape is kept out of groups after its first refusal; twice as long after each further one. */
const firstMs = 1_000;
const longestMs = 60 * 60 * 1_000;

/** SQLSTATEs of a cast to another type than the column's: type mismatch, unknown type, no such cast, no such operator. */
const mistypedStates = new Set(['42804', '42704', '42846', '42883']);

/**
 * Whether the server says that the types of the statement itself are not those of the table.
 *
 * A trigger's function fails with the same SQLSTATEs, for a reason of its own; then the error names the function as its
 * context.
 */
export function isMistyped(error: unknown): error is pg.DatabaseError {
  return (
    isRefusal(error) &&
    mistypedStates.has(error.code ?? '') &&
    error.position !== undefined &&
    error.internalQuery === undefined &&
    error.where === undefined
  );
}

/** The shapes of rows that are kept out of groups, each for a time: a table may be altered to what Drizzle says. */
export class RefusedShapes {
  readonly #refusals = new Map<RowShape, { readonly untilMs: number; readonly durationMs: number }>();
  readonly #now: () => number;

  /** @param now milliseconds that only grow */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  has(shape: RowShape): boolean {
    if (this.#refusals.size === 0) return false;
    const refusal = this.#refusals.get(shape);
    return refusal !== undefined && this.#now() < refusal.untilMs;
  }

  refuse(shapes: readonly RowShape[]): void {
    for (const shape of shapes) {
      const before = this.#refusals.get(shape);
      const durationMs = before === undefined ? firstMs : Math.min(2 * before.durationMs, longestMs);
      this.#refusals.set(shape, { untilMs: this.#now() + durationMs, durationMs });
    }
  }
}
