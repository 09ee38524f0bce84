import type {
  BlockedAttempt,
  BlockedFailure,
  BlockedHead,
  BlockedModel,
  BlockedModels,
  BlockedMove,
  BlockedPlace,
  DeliverableEvent,
  DuePlace,
  HandledEvent,
  LeasedModel,
  ModelPosition,
} from '@framework/core/adapter';

import type { Connection } from '../connection/connection.js';
import {
  EventRow,
  type EventTexts,
  bytesLimit,
  eventTexts,
  interned,
  selectEvents,
} from '../read/event-row.js';
import {
  attemptCount,
  eventsFrom,
  isRow,
  keyOf,
  mayComeAgainText,
  rowOrder,
  untried,
} from './blocked-model-sql.js';
import { heldLeases } from './pg-slot-leases.js';

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

const failText = `
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
const holdText = `
  with given as (
    select * from unnest($1::text[], $2::smallint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::integer[])
      as given (handler, slot, token, model_name, model_id, model_version, ordinal)
  ), ${heldLeases}, blocked as (
    insert into eventlog.blocked_models (handler, slot, model_name, model_id, model_version, ordinal, due_date)
    select b.handler, b.slot, b.model_name, b.model_id, b.model_version, b.ordinal, clock_timestamp() - interval '876600 hours'
    from given b join held using (handler, slot, token) order by ${rowOrder}
    on conflict do nothing
  ) ${lost}`;

const moveText = `
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
 * the clock must have gone back. Each handler has its own limit, so that no handler crowds out another. Slots without a
 * valid lease are left out: their events could not be tried, and would be read again at once. The common table expression is
 * materialized because a planner without statistics of the leases would read the models once per lease.
 */
const dueHeadsText = `
  with due as materialized (
    select b.* from (
      select handler, least($3::integer, max(heads_max)) as heads_max, array_agg(slot) as slots, array_agg(wait_max_ms) as waits,
        1 + 2 * least($3::integer, max(heads_max)) / greatest(1, count(*) filter (where exists (
          select from eventlog.blocked_models b
          where (b.handler, b.slot) = (place.handler, place.slot) and b.due_date <= statement_timestamp()))) as slot_max
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

const nextDueText = `
  select greatest(0, extract(epoch from min(b.due_date) - clock_timestamp()) * 1000)::double precision as due_ms
  from ${placesText} cross join lateral (
    select b.due_date from eventlog.blocked_models b
    where b.handler = held.handler and b.slot = held.slot and b.due_date is not null
    order by b.due_date limit 1) b
  where not h.paused having count(*) > 0`;

const withAttempt = (list: string): string => `array_append(array_remove(${list}, g.attempt), g.attempt)`;

/** Records attempts exactly once, however often and however late they are reported. */
const beginText = `
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

const giveBackText = `
  update eventlog.blocked_models b
  set open_attempts = array_remove(b.open_attempts, $5), lone_attempts = array_remove(b.lone_attempts, $5)
  where ${keyOf('b')} = ($1, $2, $3, $4) and $5 = any(b.open_attempts)`;

/**
 * Goes through the places in order, and continues each in the index after the previous page. So a page costs the same
 * however many models follow.
 */
const modelsText = `
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

const readText = `
  select asked.place::text, e.*
  from unnest($1::text[], $2::text[], $3::bigint[], $4::integer[])
    with ordinality as asked (model_name, model_id, model_version, ordinal, place)
  cross join lateral (${selectEvents('$6::integer', `${eventsFrom('asked')} limit $5`)}) e`;

/** What a row says about a blocked model, apart from its first event. */
type StoredHead = Omit<BlockedHead, 'event' | 'hasFailed'> & { readonly eventId: string | null };

/** Stores the models whose events wait for handlers, in one PostgreSQL database. */
export class PgBlockedModels implements BlockedModels {
  readonly #manager: Pick<Connection, 'query'>;
  readonly #intern = interned();

  constructor(manager: Pick<Connection, 'query'>) {
    this.#manager = manager;
  }

  fail(failures: readonly BlockedFailure[]): Promise<readonly string[]> {
    const attempts = Object.fromEntries(failures.map(givenAttempt));
    const values = [JSON.stringify(failures.map(givenFailure)), JSON.stringify(attempts)];
    return this.#lost('framework_block_failed', failText, failures, values);
  }

  hold(
    events: readonly { readonly handler: string; readonly token: string; readonly event: DeliverableEvent }[],
  ): Promise<readonly string[]> {
    const models = events.map(({ handler, token, event }) => {
      const { slot, modelName, modelId } = event;
      return { handler, token, slot, modelName, modelId, position: event };
    });
    return this.#lost('framework_hold_models', holdText, models, positionColumns(models));
  }

  move(moves: readonly BlockedMove[]): Promise<readonly string[]> {
    const keeps = moves.map(({ keepsAttempts = false }) => keepsAttempts);
    const values = [...positionColumns(moves), moves.map(({ ends }) => ends), keeps];
    return this.#lost('framework_move_models', moveText, moves, values);
  }

  async models(
    places: readonly BlockedPlace[],
    { limit, after }: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly (BlockedModel & Pick<BlockedHead, 'hasFailed'>)[]> {
    const start =
      after === undefined ? ['', -1, '', ''] : [after.handler, after.slot, after.modelName, after.modelId];
    return this.#rows('framework_blocked_models', modelsText, [...placeColumns(places), limit, ...start]);
  }

  async dueHeads(
    places: readonly DuePlace[],
    limit: number,
    {
      bytesMax = bytesLimit,
      except = [],
    }: { readonly bytesMax?: number; readonly except?: readonly BlockedModel[] } = {},
  ): Promise<readonly BlockedHead[]> {
    const rows = await this.#texts('framework_due_heads', dueHeadsText, [
      ...placeColumns(places),
      limit,
      bytesMax,
      places.map(({ waitMaxMs }) => waitMaxMs ?? null),
      places.map(({ headsMax }) => headsMax ?? null),
      except.map(({ handler }) => handler),
      except.map(({ modelName }) => modelName),
      except.map(({ modelId }) => modelId),
    ]);
    return rows.map(([stored, ...texts]) => {
      const { eventId, ...head } = JSON.parse(stored ?? '') as StoredHead;
      const event = texts[0] === null ? undefined : new EventRow(texts, this.#intern, bytesMax);
      return { ...head, event, hasFailed: event !== undefined && event.id === eventId };
    });
  }

  async nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined> {
    const rows = await this.#rows<{ due_ms: number }>(
      'framework_next_due',
      nextDueText,
      placeColumns(places),
    );
    return rows[0]?.due_ms;
  }

  async begin(
    attempts: readonly { readonly head: BlockedHead; readonly attempt: BlockedAttempt }[],
  ): Promise<readonly boolean[]> {
    const heads = attempts.map(({ head }) => head);
    const rows = await this.#rows<{ place: number }>('framework_begin_attempts', beginText, [
      ...positionColumns(heads),
      attempts.map(({ attempt }) => attempt.id),
      attempts.map(({ attempt }) => attempt.counted),
      heads.map((head) => head.attempts),
      heads.map(({ uncounted }) => uncounted),
      heads.map(({ event, position }) => (event ?? position).modelVersion),
      heads.map(({ event, position }) => (event ?? position).ordinal),
    ]);
    const begun = new Set(rows.map(({ place }) => place));
    return attempts.map((_attempt, index) => begun.has(index + 1));
  }

  async giveBack(model: BlockedModel, { id }: BlockedAttempt): Promise<void> {
    const values = [...keyValues(model), id];
    await this.#manager.query({ name: 'framework_give_back_attempt', text: giveBackText, values });
  }

  async read(
    models: readonly (Pick<BlockedModel, 'modelName' | 'modelId'> & { readonly position: ModelPosition })[],
    limit: number,
    bytesMax: number = bytesLimit,
  ): Promise<readonly (readonly DeliverableEvent[])[]> {
    const events = models.map((): DeliverableEvent[] => []);
    const values = [...positionsOf(models), limit, bytesMax];
    for (const [place, ...texts] of await this.#texts('framework_read_models', readText, values))
      events[Number(place) - 1]?.push(new EventRow(texts, this.#intern, bytesMax));
    return events;
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

  /** Writes under leases unless nothing is given; returns the tokens of leases that are lost. */
  async #lost(
    name: string,
    text: string,
    given: readonly unknown[],
    values: unknown[],
  ): Promise<readonly string[]> {
    if (given.length === 0) return [];
    return (await this.#rows<{ token: string }>(name, text, values)).map(({ token }) => token);
  }

  async #rows<R extends object>(name: string, text: string, values: unknown[]): Promise<readonly R[]> {
    return (await this.#manager.query<R>({ name, text, values })).rows;
  }

  async #texts(name: string, text: string, values: unknown[]): Promise<readonly EventTexts[]> {
    return (await this.#manager.query<(string | null)[]>({ name, text, values, ...eventTexts })).rows;
  }
}

function givenFailure({ event, attempt, before, ...failure }: BlockedFailure): object {
  const { id, slot, modelName, modelId, modelVersion, ordinal, type } = event;
  const { retryAfterMs, doneIds = [], ...state } = failure;
  const place = { slot, model_name: modelName, model_id: modelId, model_version: modelVersion, ordinal };
  return {
    ...state,
    ...place,
    event_id: id,
    event_type: type,
    retry_after_ms: retryAfterMs,
    done_ids: doneIds,
    // Such a failure changes a row, and never adds one: the model may be open again by now.
    of_head: attempt !== undefined || before !== undefined,
  };
}

/** The attempt that failed or, if none was recorded, the counts before, by handler and event. */
function givenAttempt({
  handler,
  event,
  attempt,
  before,
  attempts,
  dead,
}: BlockedFailure): readonly [string, object] {
  const counts = { attempts: before?.attempts ?? 0, uncounted: before?.uncounted ?? 0 };
  const unrecorded = { ...counts, postponed: before?.attempts === attempts && !dead };
  return [`${handler} ${event.id}`, attempt === undefined ? unrecorded : { attempt: attempt.id }];
}

function keyValues({ handler, slot, modelName, modelId }: BlockedModel): unknown[] {
  return [handler, slot, modelName, modelId];
}

function placeColumns(places: readonly BlockedPlace[]): [string[], number[]] {
  return [places.map(({ handler }) => handler), places.map(({ slot }) => slot)];
}

function positionColumns(models: readonly (LeasedModel & { readonly position: ModelPosition })[]): unknown[] {
  return [...placeColumns(models), models.map(({ token }) => token), ...positionsOf(models)];
}

function positionsOf(
  models: readonly (Pick<BlockedModel, 'modelName' | 'modelId'> & { readonly position: ModelPosition })[],
): unknown[] {
  return [
    models.map(({ modelName }) => modelName),
    models.map(({ modelId }) => modelId),
    models.map(({ position }) => position.modelVersion),
    models.map(({ position }) => position.ordinal),
  ];
}
