import type { Cursor, DeliverableEvent, DeliveryLog, EventBatch } from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { EventRow, type EventTexts, eventColumns, eventTexts, noEventColumns } from './event-row.js';
import { cutSnapshot, formatSnapshot, parseSnapshot } from './snapshot.js';

/**
 * Reads between two snapshots: what was in progress at the cursor and is seen now, and what began after it. One row more
 * holds the snapshot.
 *
 * The first part finds late commits, of which a reader of positions would skip some; neither part waits for a
 * transaction that stays open. As in PgQ, with the cursor's `xmax` and `xip` as index ranges.
 */
const readText = `
  select ${noEventColumns}, pg_current_snapshot()::text
  union all
  (select ${eventColumns}, null from eventlog.events e
   where e.event_type is not null and e.slot = any($1::smallint[]) and e.xid = any($3::xid8[])
   order by e.xid, e.position limit $4)
  union all
  (select ${eventColumns}, null from eventlog.events e
   where e.event_type is not null and e.slot = any($1::smallint[]) and e.xid >= $2::xid8
   order by e.xid, e.position limit $4)`;

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

const namesMax = 1_000;

/** Reads the log of one PostgreSQL database beyond cursors. */
export class PgDeliveryLog implements DeliveryLog {
  readonly #manager: PgTransactionManager;
  readonly #names = new Map<string, string>();

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async read(slots: readonly number[], cursor: Cursor, limit: number): Promise<EventBatch> {
    const before = parseSnapshot(cursor);
    const values = [[...slots], String(before.xmax), before.inProgress.map(String), limit + 1];
    const found = await this.#texts('framework_delivery_read', readText, values);
    let snapshot: string = cursor;
    const rows: EventRow[] = [];
    for (const texts of found) {
      if (texts[0] === null) snapshot = texts.at(-1) ?? cursor;
      else rows.push(new EventRow(texts, this.#intern));
    }
    rows.sort(byTransaction);
    const first = rows[limit];
    if (first === undefined) return { events: rows.sort(byPosition), next: snapshot, more: false };

    const { kept, cut } = await this.#cut(rows, first.xid, slots);
    const earlier = await this.#earlierVersions(kept, cut);
    const next = formatSnapshot(cutSnapshot(before, parseSnapshot(snapshot), BigInt(cut)));
    return { events: [...earlier, ...kept].sort(byPosition), next, more: true };
  }

  async find(eventId: string): Promise<DeliverableEvent | undefined> {
    const [row] = await this.#rows(
      'framework_delivery_find',
      `select ${eventColumns} from eventlog.events e where e.id = $1 and e.event_type is not null`,
      [eventId],
    );
    return row;
  }

  /** Keeps whole transactions: those below the first one that did not fit, or that one when it is the only one. */
  async #cut(
    rows: readonly EventRow[],
    cut: number,
    slots: readonly number[],
  ): Promise<{ readonly kept: readonly EventRow[]; readonly cut: number }> {
    const kept = rows.filter(({ xid }) => xid < cut);
    if (kept.length > 0) return { kept, cut };
    const values = [[...slots], String(cut)];
    return {
      kept: await this.#rows('framework_delivery_whole', wholeTransactionText, values),
      cut: cut + 1,
    };
  }

  /**
   * A transaction may get its xid, then change a model that another one with a higher xid changed before it. A batch
   * that is cut between the two lacks the earlier version: that is delivered here, and again in its own batch.
   *
   * Goes back version by version, and only as far as they lie beyond the cut.
   */
  async #earlierVersions(kept: readonly EventRow[], cut: number): Promise<readonly EventRow[]> {
    const earlier: EventRow[] = [];
    let known: readonly EventRow[] = kept.filter(({ earlyXid }) => earlyXid);
    while (known.length > 0) {
      const lowest = withoutVersionBefore(known);
      known = await this.#rows('framework_delivery_before', versionBeforeText, [
        lowest.map(({ modelId }) => modelId),
        lowest.map(({ modelName }) => modelName),
        lowest.map(({ modelVersion }) => modelVersion),
        String(cut),
      ]);
      earlier.push(...known);
    }
    return earlier;
  }

  /** Bounded: principals may be many. */
  readonly #intern = (name: string): string => {
    const known = this.#names.get(name);
    if (known !== undefined) return known;
    if (this.#names.size >= namesMax) this.#names.clear();
    this.#names.set(name, name);
    return name;
  };

  async #rows(name: string, text: string, values: unknown[]): Promise<readonly EventRow[]> {
    return (await this.#texts(name, text, values)).map((texts) => new EventRow(texts, this.#intern));
  }

  async #texts(name: string, text: string, values: unknown[]): Promise<readonly EventTexts[]> {
    const query = { name, text, values, ...eventTexts };
    return (await this.#manager.query<(string | null)[]>(query)).rows;
  }
}

function byTransaction(one: EventRow, other: EventRow): number {
  return one.xid - other.xid || byPosition(one, other);
}

/** The order of the log, which is that of versions for each model: a change is written when the one before is committed. */
function byPosition(one: EventRow, other: EventRow): number {
  return one.position - other.position;
}

/** One row for each version whose predecessor is not among the rows. */
function withoutVersionBefore(rows: readonly EventRow[]): readonly EventRow[] {
  const known = new Map(rows.map((row) => [versionKey(row, 0), row]));
  return [...known.values()].filter((row) => !known.has(versionKey(row, -1)));
}

function versionKey({ modelName, modelId, modelVersion }: EventRow, offset: number): string {
  return `${modelName} ${modelId} ${modelVersion + offset}`;
}
