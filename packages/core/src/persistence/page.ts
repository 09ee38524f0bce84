import { InvariantViolation } from '../errors/invariant-violation.js';

/** One page of a longer list, read by key and not by offset. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Pass it as `after` to read on; `undefined` on the last page. */
  readonly next: string | undefined;
}

const itemsMax = 1_000;

/**
 * How many items a page may have, 1 to 1,000, when so many are asked for; for adapters, whose limits are all alike.
 *
 * @throws InvariantViolation `invariant-violation` for what is no whole number, or below zero
 */
export function pageSize(limit: number): number {
  if (!Number.isSafeInteger(limit) || limit < 0) {
    throw new InvariantViolation(
      `The limit of a page is ${String(limit)}: pass a whole number, 1 to ${itemsMax}`,
    );
  }
  return Math.min(Math.max(limit, 1), itemsMax);
}
