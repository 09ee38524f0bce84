import type {
  ParkedEvent,
  ParkedEvents,
  ParkedHead,
  ParkedModel,
  ParkedOutcome,
  ParkedPlace,
} from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { parkedEvent } from './event-row.js';
import { heldLeases } from './held-leases.js';
import { settleModels } from './settle-models.js';

const parkText = `
  with given as (
    select * from jsonb_to_recordset($1::jsonb) as given (
      handler text, token uuid, event jsonb, attempts integer, error text, retry_after_ms double precision,
      dead boolean, suspect boolean)
  ), ${heldLeases(`(g.handler, (g.event ->> 'slot')::smallint, g.token)`)}, parked as (
    insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal,
      event_type, event, attempts, error, dead, suspect, next_attempt_date)
    select g.handler, (g.event ->> 'id')::uuid, h.slot, g.event ->> 'modelName', g.event ->> 'modelId',
      (g.event ->> 'modelVersion')::bigint, (g.event ->> 'ordinal')::integer, g.event ->> 'type', g.event,
      g.attempts, g.error, g.dead, g.suspect, clock_timestamp() + g.retry_after_ms * interval '1 millisecond'
    from given g join held h on h.token = g.token and h.slot = (g.event ->> 'slot')::smallint and h.handler = g.handler
    on conflict (handler, event_id) do nothing
    returning slot, handler, model_name, model_id
  )
  select ${settleModels}, array(
    select distinct g.token::text from given g where not exists (select from held h where h.token = g.token)) as lost
  from parked`;

/** The places of handlers that are not paused: each is one range of the index on due dates. */
const placesText = `unnest($1::text[], $2::smallint[]) as held (handler, slot) join eventlog.handlers h using (handler)`;

const dueHeadsText = `
  with due as (
    select m.* from ${placesText} cross join lateral (
      select * from eventlog.parked_models m
      where m.slot = held.slot and m.handler = held.handler and m.due_date <= statement_timestamp()
      order by m.due_date limit $3) m
    where not h.paused
    order by m.due_date limit $3
  )
  select due.handler, head.event, head.attempts, head.suspect, l.token::text as token
  from due join eventlog.leases l using (handler, slot) cross join lateral (
    select p.event, p.attempts, p.suspect from eventlog.parked_events p
    where (p.slot, p.handler, p.model_name, p.model_id) = (due.slot, due.handler, due.model_name, due.model_id)
    order by p.model_version, p.ordinal limit 1) head
  order by due.due_date`;

const nextDueText = `
  select greatest(0, extract(epoch from min(m.due_date) - clock_timestamp()) * 1000)::double precision as due_ms
  from ${placesText} cross join lateral (
    select m.due_date from eventlog.parked_models m
    where m.slot = held.slot and m.handler = held.handler and m.due_date is not null
    order by m.due_date limit 1) m
  where not h.paused having count(*) > 0`;

/** Under which a row may be changed: its handler's lease of its slot still holds. */
const held = `exists (
  select from eventlog.leases l
  where (l.handler, l.slot, l.token) = (p.handler, p.slot, $3::uuid) and l.history = eventlog.server_history() for share)`;

const changedModel = 'returning p.slot, p.handler, p.model_name, p.model_id';

/** Whether the lease still holds, also when an earlier try of the same statement has changed the row already. */
const heldAndSettled = `
  select exists (
    select from eventlog.leases l
    where (l.handler, l.slot, l.token) = ($1, $4, $3::uuid) and l.history = eventlog.server_history()) as held, ${settleModels}
  from changed`;

const doneText = `
  with changed as (
    delete from eventlog.parked_events p where p.handler = $1 and p.event_id = $2 and ${held} ${changedModel}
  ) ${heldAndSettled}`;

const failedText = `
  with changed as (
    update eventlog.parked_events p set error = $5, dead = $6,
      next_attempt_date = clock_timestamp() + $7::double precision * interval '1 millisecond'
    where p.handler = $1 and p.event_id = $2 and ${held} ${changedModel}
  ) ${heldAndSettled}`;

/** The events that wait for handlers, of one PostgreSQL database. */
export class PgParkedEvents implements ParkedEvents {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async park(events: readonly ParkedEvent[]): Promise<readonly string[]> {
    if (events.length === 0) return [];
    const given = events.map(({ retryAfterMs, ...event }) => ({ ...event, retry_after_ms: retryAfterMs }));
    const values = [JSON.stringify(given)];
    const [row] = await this.#rows<{ lost: readonly string[] }>('framework_park', parkText, values);
    return row?.lost ?? [];
  }

  async models(places: readonly ParkedPlace[]): Promise<readonly ParkedModel[]> {
    return this.#rows<ParkedModel>(
      'framework_parked_models',
      `select m.handler, m.slot, m.model_name as "modelName", m.model_id as "modelId"
       from unnest($1::text[], $2::smallint[]) as held (handler, slot) join eventlog.parked_models m using (handler, slot)`,
      columnsOf(places),
    );
  }

  async dueHeads(places: readonly ParkedPlace[], limit: number): Promise<readonly ParkedHead[]> {
    const values = [...columnsOf(places), limit];
    const rows = await this.#rows<ParkedHead>('framework_due_heads', dueHeadsText, values);
    return rows.map((row) => ({ ...row, event: parkedEvent(row.event) }));
  }

  async nextDueMs(places: readonly ParkedPlace[]): Promise<number | undefined> {
    const rows = await this.#rows<{ due_ms: number }>('framework_next_due', nextDueText, columnsOf(places));
    return rows[0]?.due_ms;
  }

  async beginAttempt({ handler, event, token }: ParkedHead): Promise<boolean> {
    const { rowCount } = await this.#manager.query({
      name: 'framework_begin_attempt',
      text: `update eventlog.parked_events p set attempts = attempts + 1
             where p.handler = $1 and p.event_id = $2 and not p.dead and ${held}`,
      values: [handler, event.id, token],
    });
    return rowCount === 1;
  }

  async endAttempt({ handler, event, token }: ParkedHead, outcome: ParkedOutcome): Promise<boolean> {
    const key = [handler, event.id, token, event.slot];
    const retryAfterMs = outcome.kind === 'retry' ? outcome.retryAfterMs : null;
    const [row] =
      outcome.kind === 'done'
        ? await this.#rows<{ held: boolean }>('framework_attempt_done', doneText, key)
        : await this.#rows<{ held: boolean }>('framework_attempt_failed', failedText, [
            ...key,
            outcome.error,
            outcome.kind === 'dead',
            retryAfterMs,
          ]);
    return row?.held ?? false;
  }

  async #rows<R extends object>(name: string, text: string, values: unknown[]): Promise<readonly R[]> {
    return (await this.#manager.query<R>({ name, text, values })).rows;
  }
}

function columnsOf(places: readonly ParkedPlace[]): [string[], number[]] {
  return [places.map(({ handler }) => handler), places.map(({ slot }) => slot)];
}
