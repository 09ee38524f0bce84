import { InvalidCursorError } from '@framework/core';
import {
  type EventDelivery,
  type LogFilter,
  type LogSearch,
  type StepPlace,
  type TrackedEvent,
  isStorableText,
  pageSize,
} from '@framework/core/adapter';

import type { Connection } from '../connection/connection.js';
import { eventFromJson, eventWith, isEventId, wholeEvent } from '../read/event-row.js';
import { isBeyond, placeOfTime, slack } from './log-place.js';
import { waitsIn } from './blocked-model-sql.js';

/** How many events one search examines. */
const examinedMax = 10_000;
/** Events with more bytes of payload and params come without these. */
const listedBytesMax = 65_536;

/**
 * The columns of {@link TrackedRow} of events `e`, with an SQL expression of their place. The size of an event is computed once, because a large
 * one has to be decompressed for it.
 */
export const trackedColumnsAt = (place: string): string => `
  (select case when bytes <= ${listedBytesMax} then ${wholeEvent} else ${eventWith(`'omitted', true, 'bytes', bytes`)} end
    from (select coalesce(octet_length(e.payload::text), 0) + octet_length(e.action_params::text) as bytes offset 0) size) as event,
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
  { limit, after }: StepPlace,
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
  if (filter.actionId === undefined) {
    const search = { range, conditions: conditions(filter, values), order: newestFirst, place: logPlace };
    return searchBack(connection, search, size, values);
  }
  const { rows } = await connection.query<TrackedRow>({
    text: `with e as materialized (
        select * from eventlog.events e where e.event_type is not null and e.action_id = ${bound(values, filter.actionId)})
      select ${trackedColumns} from e where true${range}${conditions(filter, values)} order by ${newestFirst} limit ${size + 1}`,
    values,
  });
  return pageOf(rows, size);
}

/** The SQL of a search through events `e`; each condition begins with `and`. */
interface Search {
  /** Which events are examined, apart from their number. */
  readonly range: string;
  readonly conditions: string;
  readonly order: string;
  /** The place of an event in that order. */
  readonly place: string;
}

/** An event that was found or, with a date, the last one that was examined. */
type SearchRow = TrackedRow & { readonly endDate: Date | null };

/**
 * Examines a limited number of events. If these contain no full page, the last row is the end of the search. One statement finds
 * both, so that they fit together whatever is written meanwhile. PostgreSQL checks the number of rows in `found` once, before it
 * scans anything for the end.
 */
async function searchBack(
  connection: Pick<Connection, 'query'>,
  { range, conditions: wanted, order, place }: Search,
  size: number,
  values: Values,
): Promise<LogSearch> {
  const events = `eventlog.events e where e.event_type is not null${range}`;
  const { rows } = await connection.query<SearchRow>({
    text: `with found as materialized (
        select ${trackedColumnsAt(place)} from (select * from ${events} order by ${order} limit ${examinedMax}) e
        where true${wanted} order by ${order} limit ${size + 1})
      select *, null::timestamptz as "endDate" from found
      union all
      (select null, ${place}, null, e.created_date from ${events} and (select count(*) from found) <= ${size}
       order by ${order} offset ${examinedMax - 1} limit 1)`,
    values,
  });
  const page = pageOf(
    rows.filter(({ endDate }) => endDate === null),
    size,
  );
  const end = rows.at(-1);
  return end?.endDate ? { ...page, next: end.place, reachedDate: end.endDate } : page;
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
  const action = filter.actionId === undefined ? '' : ` and e.action_id = ${bound(values, filter.actionId)}`;
  const search = {
    range: ` and e.model_id = $1${behind}`,
    conditions: `${action}${conditions(filter, values)}`,
    order: 'e.model_version desc, e.ordinal desc, e.position desc',
    place: modelPlace,
  };
  return searchBack(connection, search, size, values);
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
