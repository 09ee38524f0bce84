import type { Snapshot } from '@framework/drizzle-adapter/log';

/** Whether a transaction is visible in a snapshot. */
export function isVisible({ xmax, inProgress }: Snapshot, xid: bigint): boolean {
  return xid < xmax && !inProgress.includes(xid);
}

/** Whether every transaction below a number is visible in a snapshot. */
export function isVisibleUpTo({ xmax, inProgress }: Snapshot, xid: bigint): boolean {
  return (inProgress[0] ?? xmax) >= xid;
}

/**
 * The snapshot in which these transactions are visible as well. Those between them stay in progress, whatever became of them.
 *
 * @returns `undefined` when more than `inProgressMax` would be in progress
 */
export function withTransactions(
  { xmax, inProgress }: Snapshot,
  xids: readonly bigint[],
  inProgressMax: number,
): Snapshot | undefined {
  const added = new Set(xids);
  const end = xids.reduce((last, xid) => (xid < last ? last : xid + 1n), xmax);
  if (Number(end - xmax) > inProgressMax + added.size) return undefined;
  const open = inProgress.filter((xid) => !added.has(xid));
  for (let xid = xmax; xid < end; xid++) if (!added.has(xid)) open.push(xid);
  return open.length > inProgressMax ? undefined : { xmax: end, inProgress: open };
}
