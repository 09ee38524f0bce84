import { selectEvents } from '../read/event-row.js';
import { isBeyond } from './log-place.js';
import { heldLeases } from './pg-slot-leases.js';

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

const lost = `select distinct g.token::text as token from given g where not exists (
  select from held h where (h.handler, h.slot, h.token) = (g.handler, g.slot, g.token))`;

/** The given attempt of the failure in `excluded`, looked up by key because one statement may have many. */
const attempted = `($2::jsonb -> (excluded.handler || ' ' || excluded.event_id::text))`;

const isAtFailure = '(b.model_version, b.ordinal) = (excluded.model_version, excluded.ordinal)';

/** Whether a failure is not recorded yet in row `b`, whose event is the failed one. */
const isNews = `case when ${attempted} ? 'attempt' then ${attempted} ->> 'attempt' = any(b.open_attempts)
  else not b.dead and (${attemptCount}, b.uncounted) = ((${attempted} -> 'attempts')::integer, (${attempted} -> 'uncounted')::integer) end`;

/** What a head that is postponed without an attempt keeps, and what all others get instead. */
const keptIfPostponed = (kept: string, otherwise: string): string =>
  `case when ${isAtFailure} and (${attempted} -> 'postponed')::boolean then ${kept} else ${otherwise} end`;

export const failText = `
  with given as (
    select * from jsonb_to_recordset($1::jsonb) as given (
      handler text, token uuid, slot smallint, model_name text, model_id text, model_version bigint, ordinal integer,
      event_id uuid, event_type text, attempts integer, uncounted integer, error text, retry_after_ms double precision,
      dead boolean, done_ids uuid[], of_head boolean)
  ), ${heldLeases}, failed as (
    insert into eventlog.blocked_models as b (handler, slot, model_name, model_id, model_version, ordinal, event_id, event_type,
      attempts, uncounted, error, dead, done_ids, due_date)
    select distinct on (${rowOrder}) b.handler, b.slot, b.model_name, b.model_id, b.model_version, b.ordinal, b.event_id,
      b.event_type, b.attempts, b.uncounted, b.error, b.dead, b.done_ids,
      case when not b.dead then clock_timestamp() + coalesce(b.retry_after_ms, 0) * interval '1 millisecond' end
    from given b join held using (handler, slot, token)
    where not b.of_head or exists (select from eventlog.blocked_models known where ${isRow('known')})
    order by ${rowOrder}, b.model_version desc, b.ordinal desc
    on conflict (handler, slot, model_name, model_id) do update set
      (model_version, ordinal, event_id, event_type, uncounted, error, dead, done_ids, due_date) = (excluded.model_version,
        excluded.ordinal, excluded.event_id, excluded.event_type, excluded.uncounted, excluded.error, excluded.dead, excluded.done_ids,
        excluded.due_date),
      attempts = ${keptIfPostponed('b.attempts', 'excluded.attempts')},
      open_attempts = ${keptIfPostponed('b.open_attempts', `'{}'`)},
      lone_attempts = ${keptIfPostponed('b.lone_attempts', `'{}'`)}
    where (b.model_version, b.ordinal) < (excluded.model_version, excluded.ordinal) or ${isAtFailure} and ${isNews}
  ) ${lost}`;

/** Models that are held come before all that have failed, however long those have been due. */
export const holdText = `
  with given as (
    select * from unnest($1::text[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::integer[])
      as given (handler, slot, token, model_name, model_id, model_version, ordinal)
  ), ${heldLeases}, blocked as (
    insert into eventlog.blocked_models (handler, slot, model_name, model_id, model_version, ordinal, due_date)
    select b.handler, b.slot, b.model_name, b.model_id, b.model_version, b.ordinal, clock_timestamp() - interval '876600 hours'
    from given b join held using (handler, slot, token) order by ${rowOrder}
    on conflict do nothing
  ) ${lost}`;

export const moveText = `
  with given as (
    select * from unnest($1::text[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::integer[], $8::boolean[],
        $9::boolean[])
      as given (handler, slot, token, model_name, model_id, model_version, ordinal, ends, keeps_attempts)
  ), ${heldLeases}, passed as (
    select g.* from given g join held using (handler, slot, token) join eventlog.blocked_models b on ${isRow('g')}
    where (b.model_version, b.ordinal) < (g.model_version, g.ordinal)
      or g.ends and (b.model_version, b.ordinal) = (g.model_version, g.ordinal) and b.event_id is null
    order by ${rowOrder} for update of b
  ), ended as (
    delete from eventlog.blocked_models b using passed p where ${isRow('p')} and p.ends
  ), moved as (
    update eventlog.blocked_models b set model_version = p.model_version, ordinal = p.ordinal, ${untried},
      open_attempts = case when p.keeps_attempts then b.open_attempts else '{}' end
    from passed p where ${isRow('p')} and not p.ends
  ) ${lost}`;

/** The places of handlers that are not paused. Each is one range of the index on due dates. */
const placesText = `unnest($1::text[], $2::smallint[]) as held (handler, slot) join eventlog.handlers h using (handler)`;

/** Leaves out models that are being worked on. Uses `not in` because PostgreSQL hashes the list instead of scanning it per model. */
const isAskedFor = `(b.handler, b.model_name, b.model_id) not in (
          select * from unnest($7::text[], $8::text[], $9::text[]))`;

/**
 * Reads two ranges of the index per place: what is due, and what is due later than the longest possible wait, because
 * the clock must have gone back. Each handler has its own limit, so that no handler crowds out another. A slot gives at most twice its
 * share, counting the slots with due models. Slots without a valid lease are left out: their events could not be tried, and would be
 * read again at once. The common table expression is materialized because a planner without statistics of the leases would read
 * the models once per lease.
 */
export const dueHeadsText = `
  with due as materialized (
    select b.* from (
      select handler, least($3::integer, max(heads_max)) as heads_max, array_agg(slot) as slots, array_agg(wait_max_ms) as waits,
        1 + 2 * least($3::integer, max(heads_max)) / greatest(1, count((
          select b.due_date from eventlog.blocked_models b
          where b.handler = place.handler and b.slot = place.slot and b.due_date <= statement_timestamp()
          order by b.due_date limit 1))) as slot_max
      from unnest($1::text[], $2::smallint[], $5::double precision[], $6::integer[]) as place (handler, slot, wait_max_ms, heads_max)
      group by handler) as asked
    join eventlog.handlers h using (handler) cross join lateral (
      select b.* from unnest(asked.slots, asked.waits) as held (slot, wait_max_ms) cross join lateral (
        (select * from eventlog.blocked_models b
         where b.handler = asked.handler and b.slot = held.slot and b.due_date <= statement_timestamp() and ${isAskedFor}
         order by b.due_date limit asked.slot_max)
        union all
        (select * from eventlog.blocked_models b
         where b.handler = asked.handler and b.slot = held.slot
           and b.due_date > statement_timestamp() + held.wait_max_ms * interval '1 millisecond' and ${isAskedFor}
         order by b.due_date limit asked.slot_max)) b
      order by b.due_date limit asked.heads_max) b
    where not h.paused
  )
  select jsonb_build_object('handler', b.handler, 'slot', b.slot, 'token', l.token, 'modelName', b.model_name, 'modelId', b.model_id,
      'position', jsonb_build_object('modelVersion', b.model_version, 'ordinal', b.ordinal), 'attempts', ${attemptCount},
      'uncounted', b.uncounted, 'openCount', cardinality(b.open_attempts), 'doneIds', b.done_ids, 'eventId', b.event_id)::text, e.*
  from due b join eventlog.leases l using (handler, slot) left join lateral (
    ${selectEvents('$4::integer', `${eventsFrom('b')} limit 1`)}) e on true
  where l.history = (select eventlog.server_history())
  order by b.due_date`;

export const nextDueText = `
  select greatest(0, extract(epoch from min(b.due_date) - clock_timestamp()) * 1000)::double precision as due_ms
  from ${placesText} cross join lateral (
    select b.due_date from eventlog.blocked_models b
    where b.handler = held.handler and b.slot = held.slot and b.due_date is not null
    order by b.due_date limit 1) b
  where not h.paused having count(*) > 0`;

const withAttempt = (list: string): string => `array_append(array_remove(${list}, g.attempt), g.attempt)`;

/** Records attempts exactly once, however often and however late they are reported. */
export const beginText = `
  with given as (
    select * from unnest($1::text[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::integer[], $8::text[],
        $9::boolean[], $10::integer[], $11::integer[], $12::bigint[], $13::integer[])
      with ordinality as given (handler, slot, token, model_name, model_id, model_version, ordinal, attempt, counted, attempts,
        uncounted, event_version, event_ordinal, place)
  ), ${heldLeases}, unchanged as (
    select g.* from given g join held using (handler, slot, token) join eventlog.blocked_models b on ${isRow('g')}
    where not b.dead and (b.model_version, b.ordinal) in ((g.model_version, g.ordinal), (g.event_version, g.event_ordinal))
      and (g.attempt = any(b.open_attempts) or (${attemptCount}, b.uncounted) = (g.attempts, g.uncounted))
    order by ${rowOrder} for update of b
  )
  update eventlog.blocked_models b set model_version = g.event_version, ordinal = g.event_ordinal,
    open_attempts = ${withAttempt('b.open_attempts')},
    lone_attempts = case when g.counted then ${withAttempt('b.lone_attempts')} else array_remove(b.lone_attempts, g.attempt) end
  from unchanged g where ${isRow('g')} returning g.place::integer as place`;

export const giveBackText = `
  update eventlog.blocked_models b
  set open_attempts = array_remove(b.open_attempts, $5), lone_attempts = array_remove(b.lone_attempts, $5)
  where ${keyOf('b')} = ($1, $2, $3, $4) and $5 = any(b.open_attempts)`;

/**
 * Goes through the places in order, and continues each in the index after the previous page. So a page costs the same
 * however many models follow.
 */
export const modelsText = `
  select b.handler, b.slot, b.model_name as "modelName", b.model_id as "modelId", b.event_id is not null as "hasFailed"
  from (
    select handler, slot,
      case when (handler, slot) = ($4::text, $5::smallint) then $6::text else '' end as after_name,
      case when (handler, slot) = ($4::text, $5::smallint) then $7::text else '' end as after_id
    from unnest($1::text[], $2::smallint[]) as asked (handler, slot)
    where (handler, slot) >= ($4::text, $5::smallint)
    order by handler, slot) held cross join lateral (
    select * from eventlog.blocked_models b
    where b.handler = held.handler and b.slot = held.slot
      and (b.model_name, b.model_id) > (held.after_name, held.after_id)
    order by b.model_name, b.model_id limit $3) b
  order by held.handler, held.slot, b.model_name, b.model_id limit $3`;

export const readText = `
  with server as materialized (
    select eventlog.server_history() as history
  ), asked as materialized (
    select g.* from unnest($1::text[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::integer[])
      with ordinality as g (handler, slot, token, model_name, model_id, model_version, ordinal, place)
    where exists (
      select from eventlog.leases l where (l.handler, l.slot, l.token) = (g.handler, g.slot, g.token)
        and l.history = (select history from server))
  )
  select asked.place::text, e.* from asked
  cross join lateral (${selectEvents('$9::integer', `${eventsFrom('asked')} limit $8`)}) e`;
