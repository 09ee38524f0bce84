import { InvalidCursorError, type Page } from '@framework/core';
import {
  type DeadLetters,
  type DeadLettersStep,
  type BlockedFilter,
  type BlockedModel,
  type BlockedRow,
  type StepPlace,
  isStorableText,
  pageSize,
} from '@framework/core/adapter';
import { type SQL, and, sql } from 'drizzle-orm';

import type { PgTransactionManager } from '../pg-transaction-manager.js';
import { isEventId, blockedEvent } from '../read/event-row.js';
import { settleModels } from './pg-blocked-events.js';

/** How many bytes of events a page may hold before its last event. A read of the log has the same limit by default. */
const pageBytesMax = 16_777_216;

interface StoredRow extends Record<string, unknown> {
  readonly handler: string;
  readonly event: unknown;
  readonly attempts: number;
  readonly uncounted: number;
  readonly error: string | null;
  readonly dead: boolean;
  readonly parked_date: string;
  readonly next_attempt_date: string | null;
}

interface Row extends StoredRow {
  readonly cursor: string;
  /** How many rows match after the previous page, counted up to one more than the limit. */
  readonly found: number;
}

/** The blocked events of one PostgreSQL database, for operators. */
export class PgDeadLetters implements DeadLetters {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async find(
    filter: BlockedFilter,
    { limit, after }: { readonly limit: number; readonly after?: string },
  ): Promise<Page<BlockedRow>> {
    const size = pageSize(limit);
    const { rows } = await this.#manager.db.execute<Row>(sql`
      with found as (
        select handler, event_id, event, attempts, uncounted, error, dead, parked_date, next_attempt_date
        from eventlog.parked_events
        where ${and(matching(filter), after === undefined ? undefined : beyond(after))}
        order by parked_date, event_id, handler limit ${size + 1}
      ), measured as (
        select *, sum(octet_length(event::text)) over (order by parked_date, event_id, handler) as bytes,
               count(*) over ()::integer as found
        from found
      )
      select handler, event, attempts, uncounted, error, dead, parked_date, next_attempt_date, found, ${cursorOf} as cursor
      from measured where bytes - octet_length(event::text) < ${pageBytesMax}
      order by parked_date, event_id, handler`);
    const items = rows.slice(0, size);
    const last = items.at(-1);
    const next = last !== undefined && last.found > items.length ? last.cursor : undefined;
    return { items: items.map(blockedRow), next };
  }

  async firstOf({ slot, handler, modelName, modelId }: BlockedModel): Promise<BlockedRow | undefined> {
    const { rows } = await this.#manager.db.execute<StoredRow>(sql`
      select handler, event, attempts, uncounted, error, dead, parked_date, next_attempt_date from eventlog.parked_events
      where (slot, handler, model_name, model_id) = (${slot}::smallint, ${handler}, ${modelName}, ${modelId})
      order by model_version, ordinal limit 1`);
    return rows[0] && blockedRow(rows[0]);
  }

  replay(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
    return this.#change(
      and(sql`p.dead`, matching(filter)),
      step,
      sql`update eventlog.parked_events p set dead = false, attempts = 0, uncounted = 0, open_attempts = '{}',
            suspect = false, next_attempt_date = clock_timestamp()
          from step where p.handler = step.handler and p.event_id = step.event_id and p.dead`,
    );
  }

  skip(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep> {
    // Two separate conditions, so that each uses its own index.
    const dead = filter.dead === false ? sql`not p.dead` : sql`p.dead`;
    return this.#change(
      and(dead, matching(filter)),
      step,
      sql`delete from eventlog.parked_events p using step
          where p.handler = step.handler and p.event_id = step.event_id and ${dead}`,
    );
  }

  /** Locks rows in a fixed order, so that the commands of several operators do not deadlock. */
  async #change(which: SQL | undefined, { limit, after }: StepPlace, change: SQL): Promise<DeadLettersStep> {
    const size = pageSize(limit);
    const { rows } = await this.#manager.db.execute<{ count: number; seen: number; next: string | null }>(sql`
      with step as (
        select handler, event_id, parked_date from eventlog.parked_events p
        where ${and(which, after === undefined ? undefined : beyond(after))}
        order by parked_date, event_id, handler limit ${size} for update of p
      ), changed as (${change} returning p.slot, p.handler, p.model_name, p.model_id)
      select count(*)::integer as count, (select count(*)::integer from step) as seen,
        (select ${cursorOf} from step order by parked_date desc, event_id desc, handler desc limit 1) as next,
        ${sql.raw(settleModels)} from changed`);
    const [row] = rows;
    if (row === undefined) return { count: 0, next: undefined };
    return { count: row.count, next: row.seen < size ? undefined : (row.next ?? undefined) };
  }
}

/** The position of a row in the list of blocked events. */
const cursorOf = sql.raw(`concat(extract(epoch from parked_date), '/', event_id, '/', handler)`);

/** The first line of an error, as in the index of dead letters by it. */
export const errorLine = `"left"(split_part(coalesce(error, ''), E'\\n', 1), 200)`;

/** The condition for rows of blocked events. */
export function matching({
  handler,
  eventId,
  eventType,
  modelId,
  dead,
  errorLine: line,
}: BlockedFilter): SQL {
  const texts = [handler, eventType, modelId, line].filter((text) => text !== undefined);
  if (!texts.every(isStorableText)) return sql`false`;
  const conditions = [
    handler === undefined ? undefined : sql`handler = ${handler}`,
    eventId === undefined ? undefined : isEventId(eventId) ? sql`event_id = ${eventId}` : sql`false`,
    eventType === undefined ? undefined : sql`event_type = ${eventType}`,
    modelId === undefined ? undefined : sql`model_id = ${modelId}`,
    dead === undefined ? undefined : dead ? sql`dead` : sql`not dead`,
    line === undefined ? undefined : sql`${sql.raw(errorLine)} = ${line}`,
  ];
  return and(...conditions) ?? sql`true`;
}

function beyond(cursor: string): SQL {
  const [, seconds, eventId = '', handler] = /^(\d{1,12}\.\d{6})\/(.{36})\/(.{1,255})$/s.exec(cursor) ?? [];
  if (seconds === undefined || !isEventId(eventId) || !isStorableText(handler))
    throw new InvalidCursorError(cursor);
  return sql`(parked_date, event_id, handler) > (to_timestamp(${seconds}::numeric), ${eventId}::uuid, ${handler})`;
}

function blockedRow(row: StoredRow): BlockedRow {
  return {
    handler: row.handler,
    event: blockedEvent(row.event),
    attempts: row.attempts,
    uncounted: row.uncounted,
    error: row.error ?? undefined,
    dead: row.dead,
    blockedDate: new Date(row.parked_date),
    nextAttemptDate: row.next_attempt_date === null ? undefined : new Date(row.next_attempt_date),
  };
}
