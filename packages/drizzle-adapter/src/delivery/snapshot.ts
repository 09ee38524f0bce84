import { InvalidCursorException } from '@framework/core';

/** Which transactions are seen: those below `xmax` that are not in progress. PostgreSQL's `pg_snapshot`. */
export interface Snapshot {
  readonly xmax: bigint;
  /** In progress, below `xmax`, ascending. */
  readonly inProgress: readonly bigint[];
}

/** Nothing is seen. */
export const emptySnapshot = '1:1:';

/**
 * Reads a snapshot from PostgreSQL's text, `xmin:xmax:xip,…`.
 *
 * @throws InvalidCursorException `invalid-cursor` when it is none
 */
export function parseSnapshot(text: string): Snapshot {
  const [, xmax, list] = /^\d+:(\d+):([\d,]*)$/.exec(text) ?? [];
  if (xmax === undefined || list === undefined) throw new InvalidCursorException(text);
  return { xmax: BigInt(xmax), inProgress: list === '' ? [] : list.split(',').map(BigInt) };
}

/** Writes a snapshot as PostgreSQL does. */
export function formatSnapshot({ xmax, inProgress }: Snapshot): string {
  return `${inProgress[0] ?? xmax}:${xmax}:${inProgress.join(',')}`;
}

/**
 * The place after a batch that was cut: everything that the cursor saw, and everything below `cut` that is seen now.
 *
 * @param cursor the place before the batch
 * @param current what was seen when the batch was read
 * @param cut the first transaction that is not in the batch
 */
export function cutSnapshot(cursor: Snapshot, current: Snapshot, cut: bigint): Snapshot {
  if (cut > cursor.xmax) return { xmax: cut, inProgress: current.inProgress.filter((xid) => xid < cut) };
  const stillOpen = new Set(current.inProgress);
  return {
    xmax: cursor.xmax,
    inProgress: cursor.inProgress.filter((xid) => xid >= cut || stillOpen.has(xid)),
  };
}
