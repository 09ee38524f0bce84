import type { Cursor, EventBatch } from '@framework/core';
import type pg from 'pg';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { type EventRow, deliverableEvent, eventColumns } from './event-row.js';
import { cutSnapshot, formatSnapshot, parseSnapshot } from './snapshot.js';

/**
 * Reads between two snapshots: what was in progress at the cursor and is seen now, and what began after it.
 *
 * The first part finds late commits, of which a reader of positions would skip some; neither part waits for a
 * transaction that stays open. As in PgQ, with the cursor's `xmax` and `xip` as index ranges.
 */
const readText = `
  select now_seen.snapshot, e.*
  from (select pg_current_snapshot()::text as snapshot) now_seen
  left join lateral (
    (select ${eventColumns} from eventlog.events e
     where e.event_type is not null and e.slot = any($1::smallint[]) and e.xid = any($3::xid8[])
     order by e.xid, e.position limit $4)
    union all
    (select ${eventColumns} from eventlog.events e
     where e.event_type is not null and e.slot = any($1::smallint[]) and e.xid >= $2::xid8
     order by e.xid, e.position limit $4)
  ) e on true`;

const wholeTransactionText = `
  select ${eventColumns} from eventlog.events e
  where e.event_type is not null and e.slot = any($1::smallint[]) and e.xid = $2::xid8`;

/** The events of the last version before each given one, where its transaction is not below the cut. */
const versionBeforeText = `
  select e.* from unnest($1::text[], $2::text[], $3::bigint[]) as model (id, name, version)
  cross join lateral (
    select ${eventColumns} from eventlog.events e
    where e.model_id = model.id and e.model_name = model.name and e.model_version < model.version
      and e.event_type is not null
    order by e.model_version desc fetch first 1 row with ties) e
  where e.xid::xid8 >= $4::xid8`;

type SnapshotRow = { readonly [K in keyof EventRow]: EventRow[K] | null } & { readonly snapshot: string };

/** Reads the log beyond cursors. */
export class EventReader {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  /** @see DeliveryStore.read */
  async read(slots: readonly number[], cursor: Cursor, limit: number): Promise<EventBatch> {
    const before = parseSnapshot(cursor);
    const values = [[...slots], String(before.xmax), before.inProgress.map(String), limit + 1];
    const found = await this.#rows<SnapshotRow>('framework_delivery_read', readText, values);
    const snapshot = found[0]?.snapshot ?? cursor;
    const rows = found
      .filter((row): row is SnapshotRow & EventRow => row.id !== null)
      .toSorted(byTransaction);
    const first = rows[limit];
    if (first === undefined) return { events: inOrder(rows), next: snapshot, more: false };

    const { kept, cut } = await this.#cut(rows, BigInt(first.xid), slots);
    const earlier = await this.#earlierVersions(kept, cut);
    const next = formatSnapshot(cutSnapshot(before, parseSnapshot(snapshot), cut));
    return { events: inOrder([...earlier, ...kept]), next, more: true };
  }

  /** Keeps whole transactions: those below the first one that did not fit, or that one when it is the only one. */
  async #cut(
    rows: readonly EventRow[],
    cut: bigint,
    slots: readonly number[],
  ): Promise<{ readonly kept: readonly EventRow[]; readonly cut: bigint }> {
    const kept = rows.filter(({ xid }) => BigInt(xid) < cut);
    if (kept.length > 0) return { kept, cut };
    const values = [[...slots], String(cut)];
    return {
      kept: await this.#rows('framework_delivery_whole', wholeTransactionText, values),
      cut: cut + 1n,
    };
  }

  /**
   * A transaction may get its xid, then change a model that another one with a higher xid changed before it. A batch
   * that is cut between the two lacks the earlier version: that is delivered here, and again in its own batch.
   *
   * Goes back version by version, and only as far as they lie beyond the cut: mostly one question without an answer.
   */
  async #earlierVersions(kept: readonly EventRow[], cut: bigint): Promise<readonly EventRow[]> {
    const earlier: EventRow[] = [];
    let known = kept;
    while (known.length > 0) {
      const lowest = withoutVersionBefore(known);
      const values = [
        lowest.map(({ model_id }) => model_id),
        lowest.map(({ model_name }) => model_name),
        lowest.map(({ model_version }) => model_version),
        String(cut),
      ];
      known = await this.#rows('framework_delivery_before', versionBeforeText, values);
      earlier.push(...known);
    }
    return earlier;
  }

  async #rows<R extends pg.QueryResultRow = EventRow>(
    name: string,
    text: string,
    values: unknown[],
  ): Promise<readonly R[]> {
    return (await this.#manager.query<R>({ name, text, values })).rows;
  }
}

function byTransaction(one: EventRow, other: EventRow): number {
  return compare(BigInt(one.xid), BigInt(other.xid)) || compare(BigInt(one.position), BigInt(other.position));
}

/** The order of the log, in which each model's events take their places in the order of versions. */
function inOrder(rows: readonly EventRow[]): EventBatch['events'] {
  const byPosition = rows.toSorted((one, other) => compare(BigInt(one.position), BigInt(other.position)));
  const byModel = Map.groupBy(byPosition, modelOf);
  for (const own of byModel.values()) own.sort(byVersion);
  return byPosition.map((row) => deliverableEvent(byModel.get(modelOf(row))?.shift() ?? row));
}

/** One row for each version whose predecessor is not among the rows. */
function withoutVersionBefore(rows: readonly EventRow[]): readonly EventRow[] {
  const known = new Map(rows.map((row) => [versionKey(row, 0), row]));
  return [...known.values()].filter((row) => !known.has(versionKey(row, -1)));
}

function versionKey(row: EventRow, offset: number): string {
  return `${modelOf(row)} ${Number(row.model_version) + offset}`;
}

function modelOf({ model_name, model_id }: EventRow): string {
  return `${model_name} ${model_id}`;
}

function byVersion(one: EventRow, other: EventRow): number {
  return Number(one.model_version) - Number(other.model_version) || one.ordinal - other.ordinal;
}

function compare(one: bigint, other: bigint): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
