import { InvalidCursorError } from '@framework/core';
import type { Cursor } from '@framework/core/adapter';

/** A place in the log: within one epoch, and as it was learnt in one history of the database. */
export interface LogPlace {
  /** On which of the servers that the log was written on. */
  readonly epoch: number;
  /** Which transactions of the epoch lie before the place. */
  readonly snapshot: Snapshot;
  /** The run of the server in which the place was learnt. */
  readonly history: string;
  /** The transaction that comes next, where a part of it lies before the place. */
  readonly part?: TransactionPart | undefined;
}

/** What lies before a place of a transaction that is too large for one batch. It is not saved: a crash repeats it. */
interface TransactionPart {
  readonly xid: number;
  /** That of the last event before the place. */
  readonly position: number;
  /** Which transactions lie before the place behind the whole of it, as it was when its first part was read. */
  readonly after: Snapshot;
}

/** An expression for a cursor, of columns `epoch` and `snapshot` and of the history in which it is read. */
export const cursorText = `concat_ws(' ', epoch, snapshot, eventlog.server_history())`;

/**
 * Reads a cursor.
 *
 * @throws InvalidCursorError `invalid-cursor` when it is none
 */
export function parsePlace(cursor: Cursor): LogPlace {
  const parts = /^(\d+) (\S+) (\S+)(?: (\d+) (\d+) (\S+))?$/.exec(cursor) ?? [];
  const [, epoch, snapshot, history, xid, position, after] = parts;
  if (epoch === undefined || snapshot === undefined || history === undefined) {
    throw new InvalidCursorError(cursor);
  }
  const part =
    after === undefined
      ? undefined
      : { xid: Number(xid), position: Number(position), after: parseSnapshot(after) };
  return { epoch: Number(epoch), snapshot: parseSnapshot(snapshot), history, part };
}

/** Writes a place as a cursor. */
export function formatPlace({ epoch, snapshot, history, part }: LogPlace): Cursor {
  const place = `${epoch} ${formatSnapshot(snapshot)} ${history}`;
  if (part === undefined) return place;
  return `${place} ${part.xid} ${part.position} ${formatSnapshot(part.after)}`;
}

/** Which transactions are seen: those below `xmax` that are not in progress. PostgreSQL's `pg_snapshot`. */
interface Snapshot {
  readonly xmax: bigint;
  /** In progress, below `xmax`, ascending. */
  readonly inProgress: readonly bigint[];
}

/** Nothing is seen. */
export const emptySnapshot = '1:1:';

/**
 * Reads a snapshot from PostgreSQL's text, `xmin:xmax:xip,…`.
 *
 * @throws InvalidCursorError `invalid-cursor` when it is none
 */
export function parseSnapshot(text: string): Snapshot {
  const [, xmax, list] = /^\d+:(\d+):([\d,]*)$/.exec(text) ?? [];
  if (xmax === undefined || list === undefined) throw new InvalidCursorError(text);
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
