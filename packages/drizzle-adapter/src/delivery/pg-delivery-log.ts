import { InvariantViolationError } from '@framework/core';
import {
  type Cursor,
  type DeliverableEvent,
  type DeliveryLog,
  type EventBatch,
  HistoryChangedError,
} from '@framework/core/adapter';

import type { Connection } from '../connection/connection.js';
import {
  EventRow,
  type EventTexts,
  bytesLimit,
  byPosition,
  eventTexts,
  interned,
  isEventId,
  selectEvents,
  selectText,
} from '../read/event-row.js';
import {
  type LogPlace,
  cutSnapshot,
  emptySnapshot,
  formatPlace,
  parsePlace,
  parseSnapshot,
  presentText,
} from './log-place.js';

/**
 * Reads between two snapshots: the transactions that were in progress at the cursor and are visible now, and those that
 * began after it. An extra row holds the current snapshot with its epoch and history.
 *
 * The first part finds late commits, some of which a reader that goes by position would miss. Neither part waits for an
 * open transaction. The method is that of PgQ, with the cursor's `xmax` and `xip` as index ranges.
 */
const snapshotText = selectText(presentText);

const selectInSlots = (condition: string): string =>
  selectEvents(
    '$5::integer',
    `eventlog.events e
      where e.event_type is not null and e.slot = any($1::smallint[]) and e.epoch = $4::integer and ${condition}
      order by e.xid, e.position limit $3`,
  );

const afterText = selectInSlots('e.xid >= $2::xid8');
/**
 * One index lookup per transaction that was in progress, regardless of statistics: a condition on a list of them can be
 * planned as a filter on the whole log, which a transaction that stays open in any database of the server would cost each read.
 */
const lateText = selectEvents(
  '$5::integer',
  `unnest($6::xid8[]) as late (xid) cross join lateral (
      select * from eventlog.events e
      where e.event_type is not null and e.slot = any($1::smallint[]) and e.epoch = $4::integer and e.xid = late.xid
      order by e.position limit $3) e
    order by e.xid, e.position limit $3`,
);
const restText = selectInSlots('e.xid = $2::xid8 and e.position > $6');

const readText = `${snapshotText} union all (${lateText}) union all (${afterText})`;
/** For a cursor with nothing in progress; it searches the partitions half as often. */
const readOnText = `${snapshotText} union all (${afterText})`;
/** Reads the rest of a transaction that was read in part. */
const readRestText = `${snapshotText} union all (${restText})`;

/** The events of the version that precedes each given one, if their transaction is not below the cut. */
const versionBeforeText = selectEvents(
  '$6::integer',
  `unnest($1::text[], $2::text[], $3::bigint[]) as model (id, name, version)
    cross join lateral (
      select * from eventlog.events e
      where e.model_id = model.id and e.model_name = model.name and e.model_version < model.version
        and e.event_type is not null
      order by e.model_version desc fetch first 1 row with ties) e
    where e.xid >= $4::xid8 and e.epoch = $5`,
);

/** Complete events, each through the primary key of its partition. */
const loadText = selectEvents(
  `${bytesLimit}`,
  `unnest($1::uuid[], $2::uuid[], $3::integer[], $4::timestamptz[]) as asked (id, action_id, ordinal, created_date)
    join eventlog.events e on e.action_id = asked.action_id and e.ordinal = asked.ordinal and e.id = asked.id
      and e.created_date >= asked.created_date and e.created_date < asked.created_date + interval '1 millisecond'`,
);

/** A request to read the log, and the state of the database at that time. */
interface ReadRange {
  readonly before: LogPlace;
  readonly now: LogPlace;
  readonly limit: number;
  readonly bytesMax: number;
}

/** Reads the log of one PostgreSQL database from a cursor onwards. */
export class PgDeliveryLog implements DeliveryLog {
  readonly #manager: Pick<Connection, 'query'>;
  readonly #intern = interned();

  constructor(manager: Pick<Connection, 'query'>) {
    this.#manager = manager;
  }

  async read(
    slots: readonly number[],
    cursor: Cursor,
    limit: number,
    bytesMax: number = bytesLimit,
  ): Promise<EventBatch> {
    const before = parsePlace(cursor);
    const found = await this.#found(slots, before, limit, bytesMax);
    const rows: EventRow[] = [];
    let now = before;
    for (const texts of found) {
      if (texts[0] === null) now = parsePlace(texts.at(-1) ?? cursor);
      else rows.push(new EventRow(texts, this.#intern, bytesMax));
    }
    if (before.history !== now.history) throw new HistoryChangedError();
    return this.#batch(rows.sort(byTransaction), { before, now, limit, bytesMax });
  }

  async find(eventId: string): Promise<DeliverableEvent | undefined> {
    if (!isEventId(eventId)) return undefined;
    const [row] = await this.#rows(
      'framework_delivery_find',
      selectEvents(`${bytesLimit}`, 'eventlog.events e where e.id = $1 and e.event_type is not null'),
      [eventId],
    );
    return row;
  }

  async load(events: readonly DeliverableEvent[]): Promise<readonly DeliverableEvent[]> {
    const loaded = await this.#rows('framework_delivery_load', loadText, [
      events.map(({ id }) => id),
      events.map(({ actionId }) => actionId),
      events.map(({ ordinal }) => ordinal),
      events.map(({ createdDate }) => createdDate),
    ]);
    const byId = new Map(loaded.map((event) => [event.id, event]));
    return events.map((event) => {
      const whole = byId.get(event.id);
      if (whole !== undefined) return whole;
      throw new InvariantViolationError(
        `Event ${event.id} is missing from the log: find out what deleted it`,
      );
    });
  }

  /** Returns up to one event more than the limit, plus one row with the current state. */
  #found(
    slots: readonly number[],
    { epoch, snapshot: { xmax, inProgress }, part }: LogPlace,
    limit: number,
    bytesMax: number,
  ): Promise<readonly EventTexts[]> {
    const values = [[...slots], String(part?.xid ?? xmax), limit + 1, epoch, bytesMax];
    if (part !== undefined) {
      return this.#texts('framework_delivery_read_rest', readRestText, [...values, part.position]);
    }
    if (inProgress.length === 0) return this.#texts('framework_delivery_read_on', readOnText, values);
    return this.#texts('framework_delivery_read', readText, [...values, inProgress.map(String)]);
  }

  /**
   * Keeps the whole transactions before the first one that did not fit. If there are none, keeps a part of that one.
   *
   * @param rows ordered by transaction; one more than the limit if there are more
   */
  async #batch(rows: readonly EventRow[], range: ReadRange): Promise<EventBatch> {
    const { before, now, limit } = range;
    const { epoch, snapshot, part } = before;
    // An old epoch never changes again: all its transactions are visible, and the next epoch follows.
    const isOld = epoch < now.epoch;
    const batch = async (
      kept: readonly EventRow[],
      end: number,
      place: Pick<LogPlace, 'snapshot' | 'part'>,
    ) => {
      const earlier = await this.#earlierVersions(kept, end, range);
      const next = formatPlace({ epoch, history: now.history, ...place });
      return { events: [...earlier, ...kept].sort(byPosition), next, more: true };
    };
    const first = rows[limit];
    if (first === undefined && part !== undefined) return batch(rows, part.xid + 1, { snapshot: part.after });
    if (first === undefined) {
      const next = isOld ? { ...now, epoch: epoch + 1, snapshot: parseSnapshot(emptySnapshot) } : now;
      return { events: rows.toSorted(byPosition), next: formatPlace(next), more: isOld };
    }
    const { xid } = first;
    const current = isOld ? { ...now.snapshot, inProgress: [] } : now.snapshot;
    const whole = rows.filter((row) => row.xid < xid);
    if (whole.length > 0) return batch(whole, xid, { snapshot: cutSnapshot(snapshot, current, BigInt(xid)) });
    const kept = rows.slice(0, limit);
    const position = kept.at(-1)?.position ?? 0;
    const after = part?.after ?? cutSnapshot(snapshot, current, BigInt(xid + 1));
    return { ...(await batch(kept, xid + 1, { snapshot, part: { xid, position, after } })), partial: true };
  }

  /**
   * A transaction may get its xid first, and then change a model after a transaction with a higher xid did. If a batch
   * ends between the two, it lacks the earlier version. That version is delivered here, and again in its own batch.
   *
   * Follows a model's versions backwards, only as far as they lie beyond the cut.
   */
  async #earlierVersions(
    kept: readonly EventRow[],
    cut: number,
    { before: { epoch }, bytesMax }: ReadRange,
  ): Promise<readonly EventRow[]> {
    const earlier: EventRow[] = [];
    let known: readonly EventRow[] = kept.filter(({ earlyXid }) => earlyXid);
    while (known.length > 0) {
      const lowest = withoutVersionBefore(known);
      const values = [
        lowest.map(({ modelId }) => modelId),
        lowest.map(({ modelName }) => modelName),
        lowest.map(({ modelVersion }) => modelVersion),
        String(cut),
        epoch,
        bytesMax,
      ];
      known = await this.#rows('framework_delivery_before', versionBeforeText, values, bytesMax);
      for (const row of known) earlier.push(row);
    }
    return earlier;
  }

  async #rows(
    name: string,
    text: string,
    values: unknown[],
    bytesMax?: number,
  ): Promise<readonly EventRow[]> {
    const rows = await this.#texts(name, text, values);
    return rows.map((texts) => new EventRow(texts, this.#intern, bytesMax));
  }

  async #texts(name: string, text: string, values: unknown[]): Promise<readonly EventTexts[]> {
    const query = { name, text, values, ...eventTexts };
    return (await this.#manager.query<(string | null)[]>(query)).rows;
  }
}

function byTransaction(one: EventRow, other: EventRow): number {
  return one.xid - other.xid || byPosition(one, other);
}

/** The rows whose previous version is not among the rows; one row per version. */
function withoutVersionBefore(rows: readonly EventRow[]): readonly EventRow[] {
  const known = new Map(rows.map((row) => [versionKey(row, 0), row]));
  return [...known.values()].filter((row) => !known.has(versionKey(row, -1)));
}

function versionKey({ modelName, modelId, modelVersion }: EventRow, offset: number): string {
  return `${modelName}\0${modelId}\0${modelVersion + offset}`;
}
