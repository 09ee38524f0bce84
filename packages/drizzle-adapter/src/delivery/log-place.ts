import { InvalidCursorError } from '@framework/core';
import type { Cursor } from '@framework/core/adapter';

/** A position in the log: within one epoch, and as seen in one history of the database. */
export interface LogPlace {
  /** The epoch of the log: its number increases with each server that the database moves to. */
  readonly epoch: number;
  /** The transactions of the epoch that come before the place. */
  readonly snapshot: Snapshot;
  /** The history of the server in which the place was read. */
  readonly history: string;
  /** The next transaction, if some of its events come before the place. */
  readonly part?: TransactionPart | undefined;
}

/**
 * How much of a transaction that is too large for one batch comes before a place. It is never saved, so after a crash
 * the whole transaction is read again.
 */
interface TransactionPart {
  readonly xid: number;
  /** The position of the transaction's last event before the place. */
  readonly position: number;
  /** The snapshot of the place that follows the whole transaction, as it was when the first part was read. */
  readonly after: Snapshot;
}

/** The SQL expression for a cursor, from the columns `epoch` and `snapshot` and the history in which it is read. */
export const cursorText = `concat_ws(' ', epoch, snapshot, eventlog.server_history())`;

/** The SQL expression for the place that follows everything that is visible now, as a cursor. */
export const presentText: string = `concat_ws(' ', (select max(epoch) from eventlog.epochs), pg_current_snapshot(), eventlog.server_history())`;

/** Whether an event `e` of the log lies after a cursor `c`. */
export const isBeyond = `(e.epoch > c.epoch or e.epoch = c.epoch and not pg_visible_in_snapshot(e.xid, c.snapshot))`;

/**
 * Parses a cursor.
 *
 * @throws InvalidCursorError `invalid-cursor` when the text is not a cursor
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

/** Formats a place as a cursor. */
export function formatPlace({ epoch, snapshot, history, part }: LogPlace): Cursor {
  const place = `${epoch} ${formatSnapshot(snapshot)} ${history}`;
  if (part === undefined) return place;
  return `${place} ${part.xid} ${part.position} ${formatSnapshot(part.after)}`;
}

/** Which transactions are visible: those below `xmax` that are not in progress. PostgreSQL's `pg_snapshot`. */
export interface Snapshot {
  readonly xmax: bigint;
  /** The transactions below `xmax` that were in progress, ascending. */
  readonly inProgress: readonly bigint[];
}

/** A snapshot in which no transaction is visible. */
export const emptySnapshot = '1:1:';

/**
 * Parses a snapshot from PostgreSQL's text, `xmin:xmax:xip,…`.
 *
 * @throws InvalidCursorError `invalid-cursor` when the text is not a snapshot
 */
export function parseSnapshot(text: string): Snapshot {
  const [, xmax, list] = /^\d+:(\d+):([\d,]*)$/.exec(text) ?? [];
  if (xmax === undefined || list === undefined) throw new InvalidCursorError(text);
  return { xmax: BigInt(xmax), inProgress: list === '' ? [] : list.split(',').map(BigInt) };
}

/** Formats a snapshot as PostgreSQL does. */
export function formatSnapshot({ xmax, inProgress }: Snapshot): string {
  return `${inProgress[0] ?? xmax}:${xmax}:${inProgress.join(',')}`;
}

/**
 * The snapshot after a batch that was cut short: everything the cursor saw, and everything below `cut` that is visible
 * now.
 *
 * @param cursor the snapshot before the batch
 * @param current the snapshot at the time of the read
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

/** How far the order of transactions may differ from that of their dates, as an SQL interval. */
export const slack = `interval '1 minute'`;

/** How many transaction numbers each step of the bisection looks at. */
const probedCount = 64;

/**
 * An SQL query for the first transaction of the log whose events were created at a time or later: its columns `epoch` and `xid`, a
 * bigint that is null for an epoch without events.
 *
 * It bisects the transactions of the epoch, and each step looks at one event each of a few of them, however large they and the log are. A transaction that began
 * long before it was given its number has an older date than its neighbours, so a step takes the latest date of several.
 *
 * @param time an SQL expression of type timestamptz
 */
export const placeOfTime = (time: string): string => `
  with recursive era as (
    select coalesce(max(epoch) filter (where started_date <= ${time}), min(epoch)) as epoch from eventlog.epochs
  ), ends as (
    select epoch,
      (select e.xid::text::bigint from eventlog.events e where e.event_type is not null and e.epoch = era.epoch
       order by e.epoch, e.xid, e.position limit 1) as low,
      (select e.xid::text::bigint + 1 from eventlog.events e where e.event_type is not null and e.epoch = era.epoch
       order by e.epoch desc, e.xid desc, e.position desc limit 1) as high
    from era
  ), bisected as (
    select epoch, low, high, 0 as step from ends
    union all
    select b.epoch, case when latest.created_date < ${time} then probe.xid + 1 else b.low end,
      case when latest.created_date < ${time} then b.high else (b.low + b.high) / 2 end, b.step + 1
    from bisected b cross join lateral (
      select e.xid::text::bigint as xid from eventlog.events e
      where e.event_type is not null and e.epoch = b.epoch and e.xid >= ((b.low + b.high) / 2)::text::xid8
      order by e.epoch, e.xid, e.position limit 1) probe cross join lateral (
      select max(e.created_date) as created_date
      from generate_series(probe.xid, probe.xid + ${probedCount - 1}) as probed (xid) cross join lateral (
        select e.created_date from eventlog.events e
        where e.event_type is not null and e.epoch = b.epoch and e.xid = probed.xid::text::xid8
        order by e.epoch, e.xid, e.position limit 1) e) latest
    where b.low < b.high and b.step < 64
  )
  select epoch, low as xid from bisected order by step desc limit 1`;
