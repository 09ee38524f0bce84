import type {
  CursorMove,
  DeliverableEvent,
  HandlerCursor,
  HandlerCursors,
  HandlerLag,
  HandlerRegistration,
  StartFrom,
} from '@framework/core';
import { sql } from 'drizzle-orm';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { emptySnapshot } from './snapshot.js';

const saveText = `
  with given as (
    select * from unnest($1::text[], $2::smallint[], $3::bigint[], $4::text[]) as given (handler, slot, token, snapshot)
  ), held as (
    select s.slot, s.token from eventlog.slots s
    where exists (select from given g where g.slot = s.slot and g.token = s.token)
    for share
  ), saved as (
    update eventlog.cursors c set snapshot = g.snapshot::pg_snapshot
    from given g join held h on h.slot = g.slot and h.token = g.token
    where c.handler = g.handler and c.slot = g.slot
  )
  select distinct g.slot from given g
  where not exists (select from held h where h.slot = g.slot and h.token = g.token)`;

const lagText = `
  select h.handler, h.paused, coalesce(pending.count, 0)::integer as "pendingCount",
         coalesce(pending.oldest_ms, 0)::double precision as "oldestPendingMs",
         coalesce(parked.count, 0)::integer as "parkedCount", coalesce(parked.dead, 0)::integer as "deadCount"
  from eventlog.handlers h
  left join (
    select c.handler, count(*), extract(epoch from clock_timestamp() - min(e.created_date)) * 1000 as oldest_ms
    from eventlog.cursors c join eventlog.events e
      on e.slot = c.slot and e.event_type is not null and e.xid >= pg_snapshot_xmin(c.snapshot)
         and not pg_visible_in_snapshot(e.xid, c.snapshot)
    group by c.handler) pending using (handler)
  left join (
    select handler, count(*), count(*) filter (where dead) as dead from eventlog.parked_events group by handler
  ) parked using (handler)
  order by h.handler`;

/** Where the handlers stand in the slots of one PostgreSQL database. */
export class PgHandlerCursors implements HandlerCursors {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async register(handlers: readonly HandlerRegistration[]): Promise<void> {
    await this.#manager.inTransaction(async () => {
      await this.#manager.db.execute(
        sql`select pg_advisory_xact_lock(hashtextextended('eventlog.handlers', 0))`,
      );
      for (const handler of handlers) await this.#register(handler);
    });
  }

  async load(slots: readonly number[]): Promise<readonly HandlerCursor[]> {
    const { rows } = await this.#manager.query<HandlerCursor>({
      name: 'framework_cursors',
      text: `select handler, slot, snapshot::text as cursor, paused
             from eventlog.cursors join eventlog.handlers using (handler) where slot = any($1::smallint[])`,
      values: [[...slots]],
    });
    return rows;
  }

  async save(moves: readonly CursorMove[]): Promise<readonly number[]> {
    if (moves.length === 0) return [];
    const columns = [
      moves.map(({ handler }) => handler),
      moves.map(({ slot }) => slot),
      moves.map(({ token }) => token),
      moves.map(({ cursor }) => cursor),
    ];
    const { rows } = await this.#manager.query<{ slot: number }>({
      name: 'framework_save_cursors',
      text: saveText,
      values: columns,
    });
    return rows.map(({ slot }) => slot);
  }

  async setPaused(handler: string, paused: boolean): Promise<void> {
    await this.#manager.query({
      text: 'update eventlog.handlers set paused = $2 where handler = $1',
      values: [handler, paused],
    });
  }

  async hasPassed(handler: string, event: DeliverableEvent): Promise<boolean> {
    const { rowCount } = await this.#manager.query({
      text: `select from eventlog.events e join eventlog.cursors c on c.slot = e.slot and c.handler = $1
             where e.id = $2 and pg_visible_in_snapshot(e.xid, c.snapshot)`,
      values: [handler, event.id],
    });
    return rowCount !== 0;
  }

  async lag(): Promise<readonly HandlerLag[]> {
    return (await this.#manager.query<HandlerLag>({ text: lagText })).rows;
  }

  async #register({ name, aliases, startFrom }: HandlerRegistration): Promise<void> {
    const { db } = this.#manager;
    // Cursors and parked events follow by their foreign keys.
    await db.execute(sql`
      update eventlog.handlers set handler = ${name}
      where handler = (select handler from eventlog.handlers
                       where handler = any(${sql.param([...aliases])}::text[]) order by handler limit 1)
        and not exists (select from eventlog.handlers where handler = ${name})`);
    await db.execute(sql`insert into eventlog.handlers (handler) values (${name}) on conflict do nothing`);
    await db.execute(sql`
      insert into eventlog.cursors (handler, slot, snapshot)
      select ${name}, slot, ${startSnapshot(startFrom)} from eventlog.slots on conflict do nothing`);
  }
}

/** A time is the first transaction that wrote an event since then; what began a little earlier may come with it. */
function startSnapshot(startFrom: StartFrom) {
  if (startFrom === 'beginning') return sql`${emptySnapshot}::pg_snapshot`;
  if (startFrom === 'now') return sql`pg_current_snapshot()`;
  return sql`coalesce(
    (select format('%s:%s:', min(xid::text::bigint), min(xid::text::bigint))::pg_snapshot from eventlog.events
     where created_date >= ${startFrom.time.toISOString()}::timestamptz and event_type is not null having count(*) > 0),
    pg_current_snapshot())`;
}
