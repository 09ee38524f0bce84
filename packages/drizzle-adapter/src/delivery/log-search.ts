import { InvalidCursorError } from '@framework/core';
import {
  type EventDelivery,
  type LogFilter,
  type LogSearch,
  type TrackedEvent,
  isStorableText,
  pageSize,
} from '@framework/core/adapter';

import type { Connection } from '../connection/connection.js';
import { eventFromJson, isEventId, wholeEvent } from '../read/event-row.js';
import { isBeyond, placeOfTime, slack } from './log-place.js';
import { waitsIn } from './blocked-model-sql.js';

/** How many events one search examines. */
const examinedMax = 10_000;
/** Events with more bytes of payload and params come without these. */
const listedBytesMax = 65_536;

/** The columns of {@link TrackedRow} of events `e`, with an SQL expression of their place. */
export const trackedColumnsAt = (place: string): string => `
  case when coalesce(octet_length(e.payload::text), 0) + octet_length(e.action_params::text) <= ${listedBytesMax} then ${wholeEvent}
    else ${wholeEvent} - 'payload' - 'actionParams' || '{"omitted": true}' end as event,
  ${place} as place,
  coalesce((
    select jsonb_agg(jsonb_build_object('handler', c.handler, 'state',
      case when b.dead and b.event_id = e.id then 'dead-letter' when b.handler is not null then 'blocked'
        when ${isBeyond} then 'pending' else 'passed' end)
      order by c.handler)
    from eventlog.cursors c left join eventlog.blocked_models b on b.handler = c.handler and ${waitsIn}
    where c.slot = e.slot), '[]') as deliveries`;

const logPlace = `concat_ws(' ', e.epoch, e.xid, e.position)`;

/** The columns of {@link TrackedRow} of events `e`, with their place in the log: epoch, transaction and position. */
export const trackedColumns = trackedColumnsAt(logPlace);

/** The order of the events of a model id. Models of several classes may have the same id, and so the same versions. */
export const modelOrder = '(e.model_version, e.ordinal, e.position)';

/** The place of an event in that order, as text. */
export const modelPlace = `concat_ws('.', e.model_version, e.ordinal, e.position)`;

/**
 * The numbers of a place among the events of a model id.
 *
 * @throws InvalidCursorError `invalid-cursor` when the text is not such a place
 */
export function modelPlaceOf(text: string): readonly string[] {
  const [, ...numbers] = /^(\d{1,15})\.(\d{1,9})\.(\d{1,18})$/.exec(text) ?? [];
  if (numbers.length === 0) throw new InvalidCursorError(text);
  return numbers;
}

/** An event of the log, as the database sends it. */
export interface TrackedRow {
  readonly event: unknown;
  readonly place: string;
  readonly deliveries: readonly EventDelivery[];
}

/** An event of the log, from its row. */
export function trackedEvent({ event, deliveries }: TrackedRow): TrackedEvent {
  return { event: eventFromJson(event), deliveries };
}

const newestFirst = 'e.epoch desc, e.xid desc, e.position desc';

type Values = unknown[];

/**
 * Searches the log of one PostgreSQL database, the newest events first: those of a model or of an action by their indexes, others by
 * going back through the log.
 *
 * @throws InvalidCursorError `invalid-cursor` when `after` is not a place of this search
 */
export async function searchLog(
  connection: Pick<Connection, 'query'>,
  filter: LogFilter,
  { limit, after }: { readonly limit: number; readonly after?: string | undefined },
): Promise<LogSearch> {
  const none = { items: [], next: undefined, reachedDate: undefined };
  const texts = [filter.modelId, filter.action, filter.type, filter.principal].filter(
    (text) => text !== undefined,
  );
  if (!texts.every(isStorableText)) return none;
  if (filter.actionId !== undefined && !isEventId(filter.actionId)) return none;
  const size = pageSize(limit);
  if (filter.modelId !== undefined)
    return searchModel(connection, { ...filter, modelId: filter.modelId }, size, after);
  const values: Values = [];
  const range = await rangeOf(connection, filter, after, values);
  const examined =
    filter.actionId === undefined
      ? `select * from eventlog.events e where e.event_type is not null${range} order by ${newestFirst} limit ${examinedMax}`
      : `select * from eventlog.events e where e.event_type is not null and e.action_id = ${bound(values, filter.actionId)}`;
  const behind = filter.actionId === undefined ? '' : range;
  const found = await connection.query<TrackedRow>({
    text: `with e as ${filter.actionId === undefined ? 'not materialized' : 'materialized'} (${examined})
      select ${trackedColumns} from e where true${behind}${conditions(filter, values)} order by ${newestFirst} limit ${size + 1}`,
    values,
  });
  const page = pageOf(found.rows, size);
  if (page.next !== undefined || filter.actionId !== undefined) return page;
  return upTo(await lastExamined(connection, filter, after), page);
}

/**
 * A page of which the search has found everything up to an end. Events that were written since the search make the end a newer one; what it
 * has found behind that is left to the next page, which would find it again.
 */
function upTo(end: SearchEnd | undefined, page: LogSearch): LogSearch {
  if (end === undefined) return page;
  const items = page.items.filter(({ place }) => isUpTo(place, end.place));
  return { items, next: end.place, reachedDate: end.created_date };
}

/** Whether a place is not behind an end, that is, not older. */
function isUpTo(place: string, end: string): boolean {
  const ends = numbersOf(end);
  const different = numbersOf(place)
    .map((number, index) => number - (ends[index] ?? 0n))
    .find((difference) => difference !== 0n);
  return different === undefined || different > 0n;
}

function numbersOf(place: string): readonly bigint[] {
  return place.split(/[ .]/).map(BigInt);
}

/** The last event that a search has examined. */
interface SearchEnd {
  readonly place: string;
  readonly created_date: Date;
}

/** The place of the last event that a search examines, if there are more behind it. */
async function lastExamined(
  connection: Pick<Connection, 'query'>,
  filter: LogFilter,
  after: string | undefined,
): Promise<SearchEnd | undefined> {
  const values: Values = [];
  const range = await rangeOf(connection, filter, after, values);
  const { rows } = await connection.query<SearchEnd>({
    text: `select ${logPlace} as place, e.created_date from eventlog.events e
      where e.event_type is not null${range} order by ${newestFirst} offset ${examinedMax - 1} limit 1`,
    values,
  });
  return rows[0];
}

/** The part of the index between the times of a filter, and behind a place. */
async function rangeOf(
  connection: Pick<Connection, 'query'>,
  { since, until }: LogFilter,
  after: string | undefined,
  values: Values,
): Promise<string> {
  const ranges: string[] = [];
  if (after !== undefined) {
    const [, epoch, xid, position] = /^(\d{1,9}) (\d{1,18}) (\d{1,18})$/.exec(after) ?? [];
    if (position === undefined) throw new InvalidCursorError(after);
    ranges.push(
      `(e.epoch, e.xid, e.position) < (${bound(values, epoch)}::integer, ${bound(values, xid)}::xid8, ${bound(values, position)}::bigint)`,
    );
  } else if (until !== undefined) ranges.push(await placeRange(connection, until, '<', values));
  if (since !== undefined) ranges.push(await placeRange(connection, since, '>=', values));
  return ranges.map((range) => ` and ${range}`).join('');
}

async function placeRange(
  connection: Pick<Connection, 'query'>,
  date: Date,
  operator: '<' | '>=',
  values: Values,
): Promise<string> {
  const sign = operator === '<' ? '+' : '-';
  const { rows } = await connection.query<{ epoch: number; xid: string }>({
    text: `select coalesce(epoch, 0) as epoch, coalesce(xid, 0)::text as xid
      from (${placeOfTime(`($1::timestamptz ${sign} ${slack})`)}) place`,
    values: [date],
  });
  const { epoch, xid } = rows[0] ?? { epoch: 0, xid: '0' };
  return `(e.epoch, e.xid) ${operator} (${bound(values, epoch)}::integer, ${bound(values, xid)}::xid8)`;
}

/** Searches the events of a model backwards. */
async function searchModel(
  connection: Pick<Connection, 'query'>,
  filter: LogFilter & { readonly modelId: string },
  size: number,
  after: string | undefined,
): Promise<LogSearch> {
  const values: Values = [filter.modelId];
  const start = after === undefined ? [] : modelPlaceOf(after);
  values.push(...start);
  const behind = after === undefined ? '' : ` and ${modelOrder} < ($2::bigint, $3::integer, $4::bigint)`;
  const order = 'e.model_version desc, e.ordinal desc, e.position desc';
  const examined = `select * from eventlog.events e where e.model_id = $1 and e.event_type is not null${behind}
    order by ${order} limit ${examinedMax}`;
  const action = filter.actionId === undefined ? '' : ` and e.action_id = ${bound(values, filter.actionId)}`;
  const { rows } = await connection.query<TrackedRow>({
    text: `select ${trackedColumnsAt(modelPlace)} from (${examined}) e where true${action}${conditions(filter, values)} order by ${order} limit ${size + 1}`,
    values,
  });
  const page = pageOf(rows, size);
  if (page.next !== undefined) return page;
  const bounds = [filter.modelId, ...start];
  const { rows: ends } = await connection.query<SearchEnd>({
    text: `select ${modelPlace} as place, e.created_date from eventlog.events e
      where e.model_id = $1 and e.event_type is not null${behind} order by ${order} offset ${examinedMax - 1} limit 1`,
    values: bounds,
  });
  return upTo(ends[0], page);
}

function conditions({ action, type, principal, since, until }: LogFilter, values: Values): string {
  const parts = [
    action === undefined ? undefined : `e.action_name = ${bound(values, action)}`,
    type === undefined ? undefined : `e.event_type = ${bound(values, type)}`,
    principal === undefined ? undefined : `e.principal = ${bound(values, principal)}`,
    since === undefined ? undefined : `e.created_date >= ${bound(values, since)}`,
    until === undefined ? undefined : `e.created_date < ${bound(values, until)}`,
  ];
  return parts.flatMap((part) => (part === undefined ? [] : [` and ${part}`])).join('');
}

/** Adds a value, and returns its parameter. */
function bound(values: Values, value: unknown): string {
  return `$${values.push(value)}`;
}

function pageOf(rows: readonly TrackedRow[], size: number): LogSearch {
  const items = rows.slice(0, size).map((row) => ({ ...trackedEvent(row), place: row.place }));
  const last = rows.length > size ? items.at(-1) : undefined;
  return { items, next: last?.place, reachedDate: last?.event.createdDate };
}
