import { InvariantViolationError } from '@framework/core';
import type {
  DuePlace,
  HandledEvent,
  LeasedModel,
  BlockedAttempt,
  BlockedEvent,
  BlockedEvents,
  BlockedHead,
  BlockedModel,
  BlockedOutcome,
  BlockedPlace,
} from '@framework/core/adapter';

import type { Connection } from '../connection/connection.js';
import { blockedEvent, wholeEvent } from '../read/event-row.js';
import { isBeyond } from './pg-handler-cursors.js';
import { heldLeases } from './pg-slot-leases.js';

/**
 * Updates when the models of changed blocked events may be tried next, within the same statement.
 *
 * Select it from the rows of a `with … returning`: slot, handler, model_name, model_id.
 */
export const settleModels = `eventlog.settle_parked_models(
  array_agg(slot), array_agg(handler), array_agg(model_name), array_agg(model_id))`;

/**
 * Copies events inside the database, so that large ones need not be sent here and back or fit into one message.
 *
 * If the log no longer holds an event, the copy that the caller gave is inserted; without one, the event is reported as
 * missing.
 */
const blockText = `
  with given as (
    select * from jsonb_to_recordset($1::jsonb) as given (
      handler text, token uuid, event_id uuid, slot smallint, action_id uuid, ordinal integer,
      created_date timestamptz, event jsonb, attempts integer, uncounted integer, error text,
      retry_after_ms double precision, dead boolean, suspect boolean)
  ), ${heldLeases('(g.handler, g.slot, g.token)')}, whole as (
    select g.*, coalesce(g.event, logged.event) as copy
    from given g join held h on h.token = g.token and h.slot = g.slot and h.handler = g.handler
    left join lateral (
      select ${wholeEvent} as event from eventlog.events e
      where g.event is null and e.action_id = g.action_id and e.ordinal = g.ordinal and e.id = g.event_id
        and e.created_date >= g.created_date and e.created_date < g.created_date + interval '1 millisecond') logged on true
  ), blocked as (
    insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal,
      event_type, event, attempts, uncounted, error, dead, suspect, next_attempt_date)
    select w.handler, w.event_id, w.slot, w.copy ->> 'modelName', w.copy ->> 'modelId',
      (w.copy ->> 'modelVersion')::bigint, w.ordinal, w.copy ->> 'type', w.copy, w.attempts, w.uncounted, w.error, w.dead,
      w.suspect, clock_timestamp() + w.retry_after_ms * interval '1 millisecond'
    from whole w where w.copy is not null
    on conflict (handler, event_id) do nothing
    returning slot, handler, model_name, model_id
  )
  select ${settleModels}, array(
    select distinct g.token::text from given g where not exists (select from held h where h.token = g.token)) as lost,
    array(select w.event_id::text from whole w where w.copy is null) as missing
  from blocked`;

/** The places of handlers that are not paused. Each is one range of the index on due dates. */
const placesText = `unnest($1::text[], $2::smallint[]) as held (handler, slot) join eventlog.handlers h using (handler)`;

/**
 * Leaves out models that are being tried. Uses `not in` because PostgreSQL hashes the list instead of scanning it per
 * model.
 */
const isAskedFor = `(m.handler, m.model_name, m.model_id) not in (
          select * from unnest($7::text[], $8::text[], $9::text[]))`;

/**
 * Reads two ranges of the index per place: what is due, and what is due later than the longest possible wait, because
 * the clock must have gone back. Each handler has its own limit, so that no handler crowds out another. Slots without a
 * valid lease are left out: their events could not be tried, and would be read again at once.
 */
const dueHeadsText = `
  with due as (
    select m.* from (
      select handler, least($3::integer, max(heads_max)) as heads_max, array_agg(slot) as slots, array_agg(wait_max_ms) as waits
      from unnest($1::text[], $2::smallint[], $5::double precision[], $6::integer[]) as place (handler, slot, wait_max_ms, heads_max)
      group by handler) as asked
    join eventlog.handlers h using (handler) cross join lateral (
      select m.* from unnest(asked.slots, asked.waits) as held (slot, wait_max_ms) cross join lateral (
        (select * from eventlog.parked_models m
         where m.slot = held.slot and m.handler = asked.handler and m.due_date <= statement_timestamp() and ${isAskedFor}
         order by m.due_date limit asked.heads_max)
        union all
        (select * from eventlog.parked_models m
         where m.slot = held.slot and m.handler = asked.handler
           and m.due_date > statement_timestamp() + held.wait_max_ms * interval '1 millisecond' and ${isAskedFor}
         order by m.due_date limit asked.heads_max)) m
      order by m.due_date limit asked.heads_max) m
    where not h.paused
  )
  select due.handler, case when octet_length(head.event::text) <= $4 then head.event
      else head.event - 'payload' - 'actionParams' || jsonb_build_object('omitted', true, 'bytes', octet_length(head.event::text))
        || case when octet_length(head.event ->> 'headers') <= $4 then '{}' else '{"headers": {}}' end::jsonb
    end as event, head.attempts, head.open_count as "openCount", head.uncounted, head.suspect, l.token::text as token
  from due join eventlog.leases l using (handler, slot) cross join lateral (
    select p.event, p.attempts, cardinality(p.open_attempts) as open_count, p.uncounted, p.suspect from eventlog.parked_events p
    where (p.slot, p.handler, p.model_name, p.model_id) = (due.slot, due.handler, due.model_name, due.model_id)
    order by p.model_version, p.ordinal limit 1) head
  where l.history = (select eventlog.server_history())
  order by due.due_date`;

/** Reads one index entry per place: the model that is due first, with its first event. */
const suspectPlacesText = `
  select held.handler, held.slot
  from unnest($1::text[], $2::smallint[]) as held (handler, slot) cross join lateral (
    select * from eventlog.parked_models m
    where m.slot = held.slot and m.handler = held.handler and m.due_date <= statement_timestamp()
    order by m.due_date limit 1) due cross join lateral (
    select p.suspect from eventlog.parked_events p
    where (p.slot, p.handler, p.model_name, p.model_id) = (due.slot, due.handler, due.model_name, due.model_id)
    order by p.model_version, p.ordinal limit 1) head
  where head.suspect`;

const nextDueText = `
  select greatest(0, extract(epoch from min(m.due_date) - clock_timestamp()) * 1000)::double precision as due_ms
  from ${placesText} cross join lateral (
    select m.due_date from eventlog.parked_models m
    where m.slot = held.slot and m.handler = held.handler and m.due_date is not null
    order by m.due_date limit 1) m
  where not h.paused having count(*) > 0`;

/** A row may be changed only while its handler's lease of its slot is valid. */
const held = `exists (
  select from eventlog.leases l
  where (l.handler, l.slot, l.token) = (p.handler, p.slot, $3::uuid) and l.history = eventlog.server_history() for share)`;

const changedModel = 'returning p.slot, p.handler, p.model_name, p.model_id';

/** Whether the lease is still valid, even if an earlier try of the same statement has already changed the row. */
const heldAndSettled = `
  select exists (
    select from eventlog.leases l
    where (l.handler, l.slot, l.token) = ($1, $4, $3::uuid) and l.history = eventlog.server_history()) as held, ${settleModels}
  from changed`;

const doneText = `
  with changed as (
    delete from eventlog.parked_events p where p.handler = $1 and p.event_id = $2 and ${held} ${changedModel}
  ) ${heldAndSettled}`;

/**
 * Whether an attempt may begin or has begun already: the event is still in the state in which it was read, or the
 * attempt that this one continues is open.
 */
const mayBegin = `($4::text = any(p.open_attempts) or case when $8::text is null
  then (p.attempts, p.uncounted) = ($6::integer, $7::integer) else $8 = any(p.open_attempts) end)`;

/** Records an attempt exactly once, however often and however late it is reported. */
const beginText = `
  update eventlog.parked_events p set
    attempts = p.attempts + case when $4 = any(p.open_attempts) then 0 else $5::boolean::integer - $9::boolean::integer end,
    open_attempts = array_append(array_remove(array_remove(p.open_attempts, $8), $4), $4)
  where p.handler = $1 and p.event_id = $2 and not p.dead and ${mayBegin} and ${held}`;

const giveBackText = `
  update eventlog.parked_events p set attempts = p.attempts - $4::boolean::integer,
    open_attempts = array_remove(p.open_attempts, $3::text)
  where p.handler = $1 and p.event_id = $2 and $3::text = any(p.open_attempts)`;

/**
 * Whether the end of the attempt is not recorded yet: the attempt is open or, if none was begun, the event is still in
 * the state in which it was read. Otherwise it was recorded before, and later changes by an operator must stay.
 */
const isNews = `case when $8::text is not null then $8 = any(p.open_attempts)
  else not p.dead and (p.attempts, p.uncounted) = ($10::integer, $11::integer) end`;

const failedText = `
  with changed as (
    update eventlog.parked_events p set error = $5, dead = $6,
      next_attempt_date = clock_timestamp() + $7::double precision * interval '1 millisecond',
      attempts = p.attempts + case when $8::text is null then 0 else (not $9::boolean)::integer - $12::boolean::integer end,
      uncounted = p.uncounted + case when $9 then 1 else 0 end,
      suspect = p.suspect and $8::text is null,
      open_attempts = case when $6 or $8 is not null then '{}' else p.open_attempts end
    where p.handler = $1 and p.event_id = $2 and ${isNews} and ${held} ${changedModel}
  ) ${heldAndSettled}`;

/**
 * Goes through the places in order, and continues each in the index after the previous page. So a page costs the same
 * however many models follow.
 */
const modelsText = `
  select m.handler, m.slot, m.model_name as "modelName", m.model_id as "modelId"
  from (
    select handler, slot,
      case when (slot, handler) = ($4::smallint, $5::text) then $6::text else '' end as after_name,
      case when (slot, handler) = ($4::smallint, $5::text) then $7::text else '' end as after_id
    from unnest($1::text[], $2::smallint[]) as asked (handler, slot)
    where (slot, handler) >= ($4::smallint, $5::text)
    order by slot, handler) held cross join lateral (
    select * from eventlog.parked_models m
    where m.slot = held.slot and m.handler = held.handler
      and (m.model_name, m.model_id) > (held.after_name, held.after_id)
    order by m.model_name, m.model_id limit $3) m
  order by held.slot, held.handler, m.model_name, m.model_id limit $3`;

const stillBlockedText = `
  select asked.handler, asked.slot, asked.model_name as "modelName", asked.model_id as "modelId"
  from unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::uuid[]) as asked (slot, handler, model_name, model_id, token)
  left join eventlog.parked_models m
    on (m.slot, m.handler, m.model_name, m.model_id) = (asked.slot, asked.handler, asked.model_name, asked.model_id)
  left join eventlog.leases l
    on (l.handler, l.slot, l.token) = (asked.handler, asked.slot, asked.token) and l.history = (select eventlog.server_history())
  where m.handler is not null or l.handler is null`;

/**
 * How far the clock of a process that creates events may be ahead of the clock of the database that adopts their shard.
 */
const clockMargin = `interval '1 day'`;

/** When an event was created, according to its id, a UUID version 7. */
const madeDate = `to_timestamp(('x' || left(replace(asked.event_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)`;

/**
 * An event that is missing from the log was either dropped, or written while another database held the shard. In the
 * second case it may still be delivered, and only that database knows.
 */
const mayComeAgainText = `
  select asked.place::integer as place
  from unnest($1::text[], $2::uuid[], $3::smallint[], $4::smallint[])
    with ordinality as asked (handler, event_id, shard_group, shard_member, place)
  cross join lateral (
    select count(*) > 0 as found, coalesce(bool_or(c.handler is not null and ${isBeyond}), false) as beyond
    from eventlog.events e left join eventlog.cursors c on c.slot = e.slot and c.handler = asked.handler
    where e.id = asked.event_id and e.event_type is not null) logged
  where logged.beyond
    or exists (
      select from eventlog.parked_events p where (p.handler, p.event_id) = (asked.handler, asked.event_id))
    or not logged.found and not exists (
      select from eventlog.shards s
      where (s.shard_group, s.shard_member) = (asked.shard_group, asked.shard_member) and s.released_date is null
        and s.adopted_date < ${madeDate} - ${clockMargin})`;

interface BlockAnswer {
  readonly lost: readonly string[];
  /** The ids of events that the log does not hold. */
  readonly missing: readonly string[];
}

/** An event's position in the log, and its state as a blocked event. */
function givenEvent({ event, retryAfterMs, ...state }: BlockedEvent): object {
  const { id, slot, actionId, ordinal, createdDate } = event;
  const place = { event_id: id, slot, action_id: actionId, ordinal, created_date: createdDate };
  return { ...state, ...place, retry_after_ms: retryAfterMs };
}

/** Stores the events that are blocked for handlers, in one PostgreSQL database. */
export class PgBlockedEvents implements BlockedEvents {
  readonly #manager: Connection;

  constructor(manager: Connection) {
    this.#manager = manager;
  }

  async block(events: readonly BlockedEvent[]): Promise<readonly string[]> {
    if (events.length === 0) return [];
    const { lost, missing } = await this.#block(events.map((blocked) => givenEvent(blocked)));
    if (missing.length === 0) return lost;
    const gone = new Set(missing);
    const whole = events.filter(({ event }) => gone.has(event.id));
    const large = whole.find(({ event }) => event.omitted === true);
    if (large !== undefined)
      throw new InvariantViolationError(
        `Event ${large.event.id} is missing from the log: find out what deleted it`,
      );
    const { lost: lostSince } = await this.#block(
      whole.map((blocked) => ({ ...givenEvent(blocked), event: blocked.event })),
    );
    return [...new Set([...lost, ...lostSince])];
  }

  async models(
    places: readonly BlockedPlace[],
    { limit, after }: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly BlockedModel[]> {
    const place =
      after === undefined ? [-1, '', '', ''] : [after.slot, after.handler, after.modelName, after.modelId];
    return this.#rows<BlockedModel>('framework_blocked_models', modelsText, [
      ...columnsOf(places),
      limit,
      ...place,
    ]);
  }

  async stillBlocked(models: readonly LeasedModel[]): Promise<readonly BlockedModel[]> {
    return this.#rows<BlockedModel>('framework_still_blocked', stillBlockedText, [
      models.map(({ slot }) => slot),
      models.map(({ handler }) => handler),
      models.map(({ modelName }) => modelName),
      models.map(({ modelId }) => modelId),
      models.map(({ token }) => token),
    ]);
  }

  async dueHeads(
    places: readonly DuePlace[],
    limit: number,
    {
      bytesMax = 2 ** 31 - 1,
      except = [],
    }: { readonly bytesMax?: number; readonly except?: readonly BlockedModel[] } = {},
  ): Promise<readonly BlockedHead[]> {
    const waits = places.map(({ waitMaxMs }) => waitMaxMs ?? null);
    const counts = places.map(({ headsMax }) => headsMax ?? null);
    const left = [
      except.map(({ handler }) => handler),
      except.map(({ modelName }) => modelName),
      except.map(({ modelId }) => modelId),
    ];
    const values = [...columnsOf(places), limit, bytesMax, waits, counts, ...left];
    const rows = await this.#rows<BlockedHead>('framework_due_heads', dueHeadsText, values);
    return rows.map((row) => ({ ...row, event: blockedEvent(row.event) }));
  }

  async suspectPlaces(places: readonly BlockedPlace[]): Promise<readonly BlockedPlace[]> {
    return this.#rows<BlockedPlace>('framework_suspect_places', suspectPlacesText, columnsOf(places));
  }

  async nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined> {
    const rows = await this.#rows<{ due_ms: number }>('framework_next_due', nextDueText, columnsOf(places));
    return rows[0]?.due_ms;
  }

  async beginAttempt(
    { handler, event, token, attempts, uncounted }: BlockedHead,
    { id, counted }: BlockedAttempt,
    before?: BlockedAttempt,
  ): Promise<boolean> {
    const standing = [attempts, uncounted, before?.id ?? null, before?.counted ?? false];
    const { rowCount } = await this.#manager.query({
      name: 'framework_begin_attempt',
      text: beginText,
      values: [handler, event.id, token, id, counted, ...standing],
    });
    return rowCount === 1;
  }

  async endAttempt(
    { handler, event, token, attempts, uncounted }: BlockedHead,
    attempt: BlockedAttempt | undefined,
    outcome: BlockedOutcome,
  ): Promise<boolean> {
    const key = [handler, event.id, token, event.slot];
    const [row] =
      outcome.kind === 'done'
        ? await this.#rows<{ held: boolean }>('framework_attempt_done', doneText, key)
        : await this.#rows<{ held: boolean }>('framework_attempt_failed', failedText, [
            ...key,
            outcome.error,
            outcome.kind === 'dead',
            outcome.kind === 'dead' ? null : outcome.retryAfterMs,
            attempt?.id ?? null,
            outcome.kind === 'postponed',
            attempts,
            uncounted,
            attempt?.counted ?? null,
          ]);
    return row?.held ?? false;
  }

  async giveBackAttempt({ handler, event }: BlockedHead, { id, counted }: BlockedAttempt): Promise<void> {
    await this.#manager.query({
      name: 'framework_give_back_attempt',
      text: giveBackText,
      values: [handler, event.id, id, counted],
    });
  }

  async mayComeAgain<Event extends HandledEvent>(events: readonly Event[]): Promise<readonly Event[]> {
    const rows = await this.#rows<{ place: number }>('framework_may_come_again', mayComeAgainText, [
      events.map(({ handler }) => handler),
      events.map(({ eventId }) => eventId),
      events.map(({ shard }) => shard.group),
      events.map(({ shard }) => shard.member),
    ]);
    const places = new Set(rows.map(({ place }) => place));
    return events.filter((_event, index) => places.has(index + 1));
  }

  async #block(given: readonly object[]): Promise<BlockAnswer> {
    const [answer] = await this.#rows<BlockAnswer>('framework_block', blockText, [JSON.stringify(given)]);
    return answer ?? { lost: [], missing: [] };
  }

  async #rows<R extends object>(name: string, text: string, values: unknown[]): Promise<readonly R[]> {
    return (await this.#manager.query<R>({ name, text, values })).rows;
  }
}

function columnsOf(places: readonly BlockedPlace[]): [string[], number[]] {
  return [places.map(({ handler }) => handler), places.map(({ slot }) => slot)];
}
