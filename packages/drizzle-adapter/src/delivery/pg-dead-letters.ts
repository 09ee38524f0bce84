import { InvalidCursorError, type Page } from '@framework/core';
import {
  type BlockedFilter,
  type BlockedModel,
  type BlockedRow,
  type DeadLetters,
  type DeadLettersStep,
  type StepPlace,
  isStorableText,
  pageSize,
} from '@framework/core/adapter';
import { type SQL, and, sql } from 'drizzle-orm';

import type { PgTransactionManager } from '../pg-transaction-manager.js';
import { eventFromJson, isEventId, wholeEvent } from '../read/event-row.js';
import { attemptCount, eventsFrom, isRow, keyOf, rowOrder, untried } from './blocked-model-sql.js';

/** How many bytes of events a page may hold before its last event. A read of the log has the same limit by default. */
const pageBytesMax = 16_777_216;

interface StoredRow extends Record<string, unknown> {
  readonly handler: string;
  readonly event: unknown;
  readonly attempts: number;
  readonly uncounted: number;
  readonly error: string | null;
  readonly dead: boolean;
  readonly blocked_date: string;
  readonly due_date: string | null;
}

interface Row extends StoredRow {
  readonly cursor: string;
  /** How many rows match after the previous page, counted up to one more than the limit. */
  readonly found: number;
}

/** Blocked models `b`, with their heads from the log; those of which the log has no event are left out. */
const headsText = sql.raw(`
  select b.handler, b.model_name, b.model_id, ${attemptCount} as attempts, b.uncounted, b.error, b.dead, b.blocked_date, b.due_date, head.event
  from eventlog.blocked_models b cross join lateral (select ${wholeEvent} as event from ${eventsFrom('b')} limit 1) head`);

/** The order of the pages. */
const pageOrder = sql.raw('blocked_date, handler, model_name, model_id');

/** The place of a row in that order. */
const cursorOf = sql.raw(
  `jsonb_build_array(extract(epoch from blocked_date)::text, handler, model_name, model_id)::text`,
);

/** The heads of the blocked models of one PostgreSQL database, for operators. */
export class PgDeadLetters implements DeadLetters {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async find(filter: BlockedFilter, { limit, after }: StepPlace): Promise<Page<BlockedRow>> {
    const size = pageSize(limit);
    const { rows } = await this.#manager.db.execute<Row>(sql`
      with found as (
        ${headsText} where ${and(matching(filter), beyond(after))} order by ${pageOrder} limit ${size + 1}
      ), written as materialized (
        -- An event may have many megabytes: it becomes a text only once.
        select handler, model_name, model_id, attempts, uncounted, error, dead, blocked_date, due_date, event::text as event from found
      ), measured as (
        select *, sum(octet_length(event)) over (order by ${pageOrder}) as bytes, count(*) over ()::integer as found from written
      )
      select handler, event::json, attempts, uncounted, error, dead, blocked_date, due_date, found, ${cursorOf} as cursor
      from measured where bytes - octet_length(event) < ${pageBytesMax} order by ${pageOrder}`);
    const items = rows.slice(0, size);
    const last = items.at(-1);
    const next = last !== undefined && last.found > items.length ? last.cursor : undefined;
    return { items: items.map(blockedRow), next };
  }

  async countBlocked(filter: BlockedFilter, countMax: number): Promise<number> {
    const { rows } = await this.#manager.db.execute<{ count: number }>(sql`
      select count(*)::integer as count
      from (select from eventlog.blocked_models b where ${matching(filter)}
            order by ${pageOrder} limit ${countMax}) each`);
    return rows[0]?.count ?? 0;
  }

  async headOf({ handler, slot, modelName, modelId }: BlockedModel): Promise<BlockedRow | undefined> {
    const { rows } = await this.#manager.db.execute<StoredRow>(sql`
      ${headsText} where ${sql.raw(keyOf('b'))} = (${handler}, ${slot}::smallint, ${modelName}, ${modelId})`);
    return rows[0] && blockedRow(rows[0]);
  }

  replay(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
    if (filter.dead === false) return Promise.resolve({ count: 0, next: undefined });
    return this.#change(
      { ...filter, dead: true },
      step,
      `dead = false, attempts = 0, uncounted = b.uncounted + 1, open_attempts = '{}', lone_attempts = '{}', due_date = clock_timestamp()`,
    );
  }

  skip(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
    return this.#change(
      { ...filter, dead: filter.dead ?? true },
      step,
      `ordinal = b.ordinal + 1, ${untried}, open_attempts = '{}'`,
    );
  }

  /** Changes models that are still blocked at the same place once they are locked. */
  async #change(
    filter: BlockedFilter,
    { limit, after }: StepPlace,
    change: string,
  ): Promise<DeadLettersStep> {
    const size = pageSize(limit);
    const { rows } = await this.#manager.db.execute<{ count: number; seen: number; next: string | null }>(sql`
      with step as (
        select * from eventlog.blocked_models b where ${and(matching(filter), beyond(after))} order by ${pageOrder} limit ${size}
      ), locked as (
        select b.* from step join eventlog.blocked_models b on ${sql.raw(isRow('step'))}
        where (b.dead, b.model_version, b.ordinal) = (step.dead, step.model_version, step.ordinal)
        order by ${sql.raw(rowOrder)} for update of b
      ), changed as (
        update eventlog.blocked_models b set ${sql.raw(change)} from locked where ${sql.raw(isRow('locked'))} returning b.handler
      )
      select (select count(*)::integer from changed) as count, count(*)::integer as seen,
        (select ${cursorOf} from step order by blocked_date desc, handler desc, model_name desc, model_id desc limit 1) as next
      from step`);
    const { count, seen, next } = rows[0] ?? { count: 0, seen: 0, next: null };
    return { count, next: seen < size ? undefined : (next ?? undefined) };
  }
}

/** The first line of an error, as in the index of dead letters by it. */
export const errorLine = `"left"(split_part(coalesce(error, ''), E'\\n', 1), 200)`;

/** The condition for blocked models `b` whose head has failed. */
function matching({ handler, eventId, eventType, modelId, dead, errorLine: line }: BlockedFilter): SQL {
  const texts = [handler, eventType, modelId, line].filter((text) => text !== undefined);
  if (!texts.every(isStorableText)) return sql`false`;
  const conditions = [
    handler === undefined ? undefined : sql`b.handler = ${handler}`,
    eventId === undefined ? undefined : isEventId(eventId) ? sql`b.event_id = ${eventId}` : sql`false`,
    eventType === undefined ? undefined : sql`b.event_type = ${eventType}`,
    modelId === undefined ? undefined : sql`b.model_id = ${modelId}`,
    // Two separate conditions, so that each uses its own index.
    dead === undefined ? undefined : dead ? sql`b.dead` : sql`not b.dead`,
    line === undefined ? undefined : sql`${sql.raw(errorLine)} = ${line}`,
    sql`b.event_id is not null`,
  ];
  return and(...conditions) ?? sql`true`;
}

/** The condition for the rows after a place; none without one. */
function beyond(after: string | undefined): SQL | undefined {
  if (after === undefined) return undefined;
  const [seconds = '', handler, modelName, modelId] = cursorTexts(after, 4);
  if (!/^\d{1,12}\.\d{6}$/.test(seconds)) throw new InvalidCursorError(after);
  const place = sql`(to_timestamp(${seconds}::numeric), ${handler}, ${modelName}, ${modelId})`;
  return sql`(b.blocked_date, b.handler, b.model_name, b.model_id) > ${place}`;
}

/**
 * The texts in a cursor that is a list of them.
 *
 * @throws InvalidCursorError `invalid-cursor` unless it is a list of `count` storable texts
 */
export function cursorTexts(cursor: string, count: number): readonly string[] {
  let texts: unknown;
  try {
    texts = JSON.parse(cursor);
  } catch {
    // Refused below.
  }
  const list: readonly unknown[] = Array.isArray(texts) ? texts : [];
  const storable = list.filter(isStorableText);
  if (list.length !== count || storable.length !== count) throw new InvalidCursorError(cursor);
  return storable;
}

function blockedRow(row: StoredRow): BlockedRow {
  return {
    handler: row.handler,
    event: eventFromJson(row.event),
    attempts: row.attempts,
    uncounted: row.uncounted,
    error: row.error ?? undefined,
    dead: row.dead,
    blockedDate: new Date(row.blocked_date),
    nextAttemptDate: row.due_date === null ? undefined : new Date(row.due_date),
  };
}
