import type { ParkedEvent, ParkedHead, ParkedModel, ParkedOutcome } from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { parkedEvent } from './event-row.js';

const parkText = `
  with given as (
    select * from jsonb_to_recordset($1::jsonb) as given (
      handler text, token bigint, event jsonb, attempts integer, error text, retry_after_ms double precision,
      dead boolean, suspect boolean)
  ), held as (
    select s.slot, s.token from eventlog.slots s
    where exists (select from given g where (g.event ->> 'slot')::smallint = s.slot and g.token = s.token)
    for share
  ), parked as (
    insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal,
      event_type, event, attempts, error, dead, suspect, next_attempt_date)
    select g.handler, (g.event ->> 'id')::uuid, h.slot, g.event ->> 'modelName', g.event ->> 'modelId',
      (g.event ->> 'modelVersion')::bigint, (g.event ->> 'ordinal')::integer, g.event ->> 'type', g.event,
      g.attempts, g.error, g.dead, g.suspect, clock_timestamp() + g.retry_after_ms * interval '1 millisecond'
    from given g join held h on h.slot = (g.event ->> 'slot')::smallint and h.token = g.token
    on conflict (handler, event_id) do nothing
  )
  select distinct (g.event ->> 'slot')::smallint as slot from given g
  where not exists (select from held h where h.slot = (g.event ->> 'slot')::smallint and h.token = g.token)`;

/** The first parked event of each model of a handler that is not paused, in these slots. */
const heads = `
  select distinct on (p.handler, p.model_name, p.model_id) p.*
  from eventlog.parked_events p join eventlog.handlers h using (handler)
  where p.slot = any($1::smallint[]) and not h.paused
  order by p.handler, p.model_name, p.model_id, p.model_version, p.ordinal`;

const dueHeadsText = `
  select p.handler, p.event, p.attempts, p.suspect, s.token::text as token
  from (${heads}) p join eventlog.slots s using (slot)
  where not p.dead and coalesce(p.next_attempt_date <= clock_timestamp(), true)
  order by p.next_attempt_date nulls first, p.parked_date limit $2`;

const nextDueText = `
  select greatest(0, extract(epoch from p.due_date - clock_timestamp()) * 1000)::double precision as due_ms
  from (select min(coalesce(next_attempt_date, clock_timestamp())) as due_date from (${heads}) p where not p.dead) p
  where p.due_date is not null`;

/** Under which a row may be changed: the lease of its slot still holds. */
const held = `exists (select from eventlog.slots s where s.slot = p.slot and s.token = $3::bigint for share)`;

/** The events that wait, of one database. */
export class ParkedEvents {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  /** @see DeliveryStore.park */
  async park(events: readonly ParkedEvent[]): Promise<readonly number[]> {
    if (events.length === 0) return [];
    const given = events.map(({ retryAfterMs, ...event }) => ({ ...event, retry_after_ms: retryAfterMs }));
    const rows = await this.#rows<{ slot: number }>('framework_park', parkText, [JSON.stringify(given)]);
    return rows.map(({ slot }) => slot);
  }

  /** @see DeliveryStore.parkedModels */
  async parkedModels(slots: readonly number[]): Promise<readonly ParkedModel[]> {
    return this.#rows<ParkedModel>(
      'framework_parked_models',
      `select distinct handler, slot, model_name as "modelName", model_id as "modelId"
       from eventlog.parked_events where slot = any($1::smallint[])`,
      [[...slots]],
    );
  }

  /** @see DeliveryStore.dueHeads */
  async dueHeads(slots: readonly number[], limit: number): Promise<readonly ParkedHead[]> {
    const rows = await this.#rows<ParkedHead>('framework_due_heads', dueHeadsText, [[...slots], limit]);
    return rows.map((row) => ({ ...row, event: parkedEvent(row.event) }));
  }

  /** @see DeliveryStore.nextDueMs */
  async nextDueMs(slots: readonly number[]): Promise<number | undefined> {
    const rows = await this.#rows<{ due_ms: number }>('framework_next_due', nextDueText, [[...slots]]);
    return rows[0]?.due_ms;
  }

  /** @see DeliveryStore.beginAttempt */
  beginAttempt({ handler, event, token }: ParkedHead): Promise<boolean> {
    return this.#change(
      'framework_begin_attempt',
      `update eventlog.parked_events p set attempts = attempts + 1
       where p.handler = $1 and p.event_id = $2 and not p.dead and ${held}`,
      [handler, event.id, token],
    );
  }

  /** @see DeliveryStore.endAttempt */
  endAttempt({ handler, event, token }: ParkedHead, outcome: ParkedOutcome): Promise<boolean> {
    const key = [handler, event.id, token];
    if (outcome.kind === 'done') {
      const text = `delete from eventlog.parked_events p where p.handler = $1 and p.event_id = $2 and ${held}`;
      return this.#change('framework_attempt_done', text, key);
    }
    const retryAfterMs = outcome.kind === 'retry' ? outcome.retryAfterMs : null;
    return this.#change(
      'framework_attempt_failed',
      `update eventlog.parked_events p set error = $4, dead = $5,
         next_attempt_date = clock_timestamp() + $6::double precision * interval '1 millisecond'
       where p.handler = $1 and p.event_id = $2 and ${held}`,
      [...key, outcome.error, outcome.kind === 'dead', retryAfterMs],
    );
  }

  async #change(name: string, text: string, values: unknown[]): Promise<boolean> {
    return (await this.#manager.query({ name, text, values })).rowCount === 1;
  }

  async #rows<R extends object>(name: string, text: string, values: unknown[]): Promise<readonly R[]> {
    return (await this.#manager.query<R>({ name, text, values })).rows;
  }
}
