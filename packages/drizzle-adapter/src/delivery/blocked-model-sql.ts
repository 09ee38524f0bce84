import { isBeyond } from './log-place.js';

/** The key of the rows of `name`, as an SQL row. */
export const keyOf = (name: string): string =>
  `(${name}.handler, ${name}.slot, ${name}.model_name, ${name}.model_id)`;

/** Whether a row belongs to the same model of the same handler as row `b`. */
export const isRow = (name: string): string => `${keyOf('b')} = ${keyOf(name)}`;

/** Statements lock rows in this order, so that they do not deadlock. */
export const rowOrder = 'b.handler, b.slot, b.model_name, b.model_id';

/**
 * The part after `from` that selects the events of a blocked model `b` from its bound on, in order.
 *
 * Written as a range of one id and a `coalesce`: with plain equality, the planner expects few events and sorts them all for each
 * limit; this way, it reads them from the index in order.
 */
export const eventsFrom = (b: string): string => `eventlog.events e
  where (e.model_id, e.model_version, e.ordinal) >= (${b}.model_id, ${b}.model_version, ${b}.ordinal) and e.model_id <= ${b}.model_id
    and coalesce(e.model_name = ${b}.model_name, false) and e.event_type is not null
  order by e.model_id, e.model_version, e.ordinal`;

/** Whether an event `e` of the log waits in a blocked model `b`, for the handler of `b`. */
export const waitsIn = `(b.slot, b.model_name, b.model_id) = (e.slot, e.model_name, e.model_id)
  and (b.model_version, b.ordinal) <= (e.model_version, e.ordinal) and e.id <> all(b.done_ids)`;

/** How many attempts at a row `b` count. */
export const attemptCount = '(b.attempts + cardinality(b.lone_attempts))';

/** The state of a row whose head is untried, apart from open attempts; later events that are done stay so. */
export const untried = `event_id = null, event_type = null, error = null, dead = false, attempts = 0, uncounted = 0,
  lone_attempts = '{}', due_date = clock_timestamp()`;

/**
 * How far the clock of a process that creates events may be ahead of the clock of the database that adopts their shard.
 */
const clockMargin = `interval '1 day'`;

/** When an event was created, according to its id, a UUID version 7. */
const madeDate = `to_timestamp(('x' || left(replace(asked.event_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)`;

/**
 * The places in the given lists of the events that may still be delivered to their handlers.
 *
 * An event that is missing from the log was either dropped, or written while another database held the shard. In the
 * second case it may still be delivered, and only that database knows.
 */
export const mayComeAgainText = `
  select asked.place::integer as place
  from unnest($1::text[], $2::uuid[], $3::smallint[], $4::smallint[])
    with ordinality as asked (handler, event_id, shard_group, shard_member, place)
  cross join lateral (
    select count(*) > 0 as found, coalesce(bool_or(c.handler is not null and ${isBeyond} or exists (
      select from eventlog.blocked_models b where b.handler = asked.handler and ${waitsIn})), false) as comes
    from eventlog.events e left join eventlog.cursors c on c.slot = e.slot and c.handler = asked.handler
    where e.id = asked.event_id and e.event_type is not null) logged
  where logged.comes
    or not logged.found and not exists (
      select from eventlog.shards s
      where (s.shard_group, s.shard_member) = (asked.shard_group, asked.shard_member) and s.released_date is null
        and s.adopted_date < ${madeDate} - ${clockMargin})`;
