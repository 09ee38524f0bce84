import {
  type CursorMove,
  type HandlerCursor,
  type HandlerCursors,
  HandlerInUseError,
  type HandlerLag,
  HandlerNamesError,
  type HandlerRegistration,
  type KnownHandler,
  type StartFrom,
  isStorableText,
} from '@framework/core/adapter';
import { sql } from 'drizzle-orm';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

import type { ConnectionGuard } from '../connection/client.js';
import type { PgTransactionManager } from '../pg-transaction-manager.js';
import type { PostgresWarning } from '../connection/postgres-options.js';
import {
  cursorText,
  emptySnapshot,
  formatSnapshot,
  isBeyond,
  parsePlace,
  placeOfTime,
  slack,
} from './log-place.js';
import { eventsFrom } from './blocked-model-sql.js';
import { heldLeases } from './pg-slot-leases.js';

/** An expression that orders places. Of two with the same `xmax`, the later one has fewer transactions in progress. */
const farAs = (epoch: string, snapshot: string): string =>
  `(${epoch}, pg_snapshot_xmax(${snapshot}), -(select count(*) from pg_snapshot_xip(${snapshot})))`;

const saveText = `
  with given as (
    select * from unnest($1::text[], $2::smallint[], $3::uuid[], $4::integer[], $5::text[], $6::text[])
      as given (handler, slot, token, epoch, snapshot, history)
  ), ${heldLeases}, saved as (
    update eventlog.cursors c set epoch = g.epoch, snapshot = g.snapshot::pg_snapshot
    from given g join held h using (token, handler, slot) join server using (history)
    where c.handler = g.handler and c.slot = g.slot
      and ${farAs('g.epoch', 'g.snapshot::pg_snapshot')} >= ${farAs('c.epoch', 'c.snapshot')}
  )
  select distinct g.token::text as token from given g
  where not exists (select from held h join server on true where h.token = g.token and server.history = g.history)`;

/** How many events are examined to measure a handler's lag, starting from its cursor that is furthest behind. */
const lagEventsMax = 100_000;

/** How many waiting events of a handler, and how many dead letters, are counted at most; in the order of an index, so that others' are not read. */
const blockedCountMax = 10_000;

/** How many models of a handler are examined to count what waits in them; some may have nothing left. */
const examinedMax = 50_000;

const lagText = `
  with hindmost as (
    select distinct on (handler) handler, epoch, pg_snapshot_xmin(snapshot) as xid
    from eventlog.cursors order by handler, epoch, pg_snapshot_xmin(snapshot)
  ), pending as (
    select f.handler, count(*), extract(epoch from clock_timestamp() - min(e.created_date)) * 1000 as oldest_ms
    from hindmost f cross join lateral (
      select e.epoch, e.xid, e.slot, e.created_date from eventlog.events e
      where e.event_type is not null and (e.epoch, e.xid) >= (f.epoch, f.xid)
      order by e.epoch, e.xid, e.position limit ${lagEventsMax}) e
    join eventlog.cursors c on c.handler = f.handler and c.slot = e.slot
    where ${isBeyond} group by f.handler
  )
  select h.handler, h.paused, coalesce(pending.count, 0)::integer as "pendingCount",
         coalesce(pending.oldest_ms, 0)::double precision as "oldestPendingMs",
         coalesce(blocked.count, 0)::integer as "blockedCount", coalesce(blocked.dead, 0)::integer as "deadCount"
  from eventlog.handlers h
  left join pending using (handler)
  cross join lateral (
    select (select count(*) from (
              select from (
                select * from eventlog.blocked_models b where b.handler = h.handler
                order by b.slot, b.model_name, b.model_id limit ${examinedMax}) b
              join eventlog.cursors c using (handler, slot) cross join lateral (
                select e.id, e.epoch, e.xid from ${eventsFrom('b')} limit ${blockedCountMax}) e
              where e.id <> all(b.done_ids) and not ${isBeyond}
              limit ${blockedCountMax}) each) as count,
           (select count(*) from (
              select from eventlog.blocked_models b where b.handler = h.handler and b.dead
              order by b.blocked_date limit ${blockedCountMax}) each) as dead
  ) blocked
  order by h.handler`;

/**
 * The process with this handler that was seen last, if it may still be running. It counts as running, but late, for one
 * more lease time after its lease has ended.
 */
const userText = `
  select process_id as "processId", until_date <= clock_timestamp() as late
  from eventlog.processes
  where $1 = any(handlers) and until_date + (until_date - renewed_date) > clock_timestamp()
  order by until_date desc limit 1`;

/** The cursors of handlers in the slots of one PostgreSQL database. */
export class PgHandlerCursors implements HandlerCursors {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async register(handler: HandlerRegistration): Promise<string> {
    return this.#manager.inTransaction(async () => {
      await this.#lock('eventlog.handlers');
      return this.#register(handler);
    });
  }

  async find(name: string): Promise<string | undefined> {
    const [id] = isStorableText(name) ? await this.#find([name]) : [];
    return id;
  }

  async known(): Promise<readonly KnownHandler[]> {
    const { rows } = await this.#manager.query<KnownHandler>({
      name: 'framework_known_handlers',
      text: `select handler, array(select n.name from eventlog.handler_names n where n.handler = h.handler) as names, paused
             from eventlog.handlers h`,
      values: [],
    });
    return rows;
  }

  async load(slots: readonly number[]): Promise<readonly HandlerCursor[]> {
    const { rows } = await this.#manager.query<HandlerCursor>({
      name: 'framework_handler_cursors',
      text: `select handler, slot, ${cursorText} as cursor, paused
             from eventlog.cursors join eventlog.handlers using (handler) where slot = any($1::smallint[])`,
      values: [[...slots]],
    });
    return rows;
  }

  async save(moves: readonly CursorMove[]): Promise<readonly string[]> {
    if (moves.length === 0) return [];
    const places = moves.map(({ cursor }) => parsePlace(cursor));
    const columns = [
      moves.map(({ handler }) => handler),
      moves.map(({ slot }) => slot),
      moves.map(({ token }) => token),
      places.map(({ epoch }) => epoch),
      places.map(({ snapshot }) => formatSnapshot(snapshot)),
      places.map(({ history }) => history),
    ];
    const { rows } = await this.#manager.query<{ token: string }>({
      name: 'framework_save_handler_cursors',
      text: saveText,
      values: columns,
    });
    return rows.map(({ token }) => token);
  }

  async setPaused(handler: string, paused: boolean): Promise<void> {
    await this.#manager.query({
      text: 'update eventlog.handlers set paused = $2 where handler = $1',
      values: [handler, paused],
    });
  }

  async lag(): Promise<readonly HandlerLag[]> {
    return this.#manager.inTransaction(async () => {
      // JIT compilation of the statement for all partitions would take many times as long as running it.
      await this.#manager.query({ text: 'set local jit = off' });
      return (await this.#manager.query<HandlerLag>({ text: lagText })).rows;
    });
  }

  async retire(handler: string, { discardBlocked }: { readonly discardBlocked: boolean }): Promise<void> {
    await this.#manager.inTransaction(async () => {
      await this.#lock('eventlog.handlers');
      await this.#lock('eventlog.slots');
      const users = await this.#manager.query<{ processId: string; late: boolean }>({
        text: userText,
        values: [handler],
      });
      const [user] = users.rows;
      if (user !== undefined) throw HandlerInUseError.by(handler, user);
      const { rows } = await this.#manager.query<{ blocked: number }>({
        text: 'select count(*)::integer as blocked from eventlog.blocked_models where handler = $1',
        values: [handler],
      });
      const { blocked } = rows[0] ?? { blocked: 0 };
      if (blocked > 0 && !discardBlocked) {
        throw new HandlerInUseError(
          handler,
          `${blocked} models are blocked for it: discard what waits in them, or let a process handle it`,
        );
      }
      // Cascades to cursors, leases, names and blocked models.
      await this.#manager.db.execute(sql`delete from eventlog.handlers where handler = ${handler}`);
    });
  }

  async #register({ name, aliases, startFrom }: HandlerRegistration): Promise<string> {
    const { db } = this.#manager;
    const names = [name, ...aliases];
    const known = await this.#find(names);
    if (known.length > 1) throw new HandlerNamesError(name, known);
    const id = known[0] ?? name;
    await db.execute(sql`insert into eventlog.handlers (handler) values (${id}) on conflict do nothing`);
    await db.execute(sql`
      insert into eventlog.handler_names (name, handler)
      select name, ${id} from unnest(${sql.param(names)}::text[]) as given (name) on conflict do nothing`);
    await db.execute(sql`
      insert into eventlog.leases (handler, slot) select ${id}, slot from eventlog.slots on conflict do nothing`);
    await db.execute(sql`
      insert into eventlog.cursors (handler, slot, epoch, snapshot)
      select ${id}, slot, start.epoch, start.snapshot from eventlog.slots cross join (${startPlace(startFrom)}) as start
      on conflict do nothing`);
    return id;
  }

  /** The ids of the handlers that have or had one of these names. */
  async #find(names: readonly string[]): Promise<readonly string[]> {
    const { rows } = await this.#manager.query<{ handler: string }>({
      text: 'select distinct handler from eventlog.handler_names where name = any($1::text[]) order by handler',
      values: [[...names]],
    });
    return rows.map(({ handler }) => handler);
  }

  async #lock(name: string): Promise<void> {
    await this.#manager.db.execute(sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`);
  }
}

/**
 * The place in the log where a new handler starts, as an SQL query.
 *
 * A handler that starts at a time may get a few older events: its place is before the first transaction of about that time. A
 * transaction that is still open may have written an event since that time, so it comes after the place, even if its number is
 * lower.
 */
function startPlace(startFrom: StartFrom) {
  const now = sql`select max(epoch) as epoch, pg_current_snapshot() as snapshot from eventlog.epochs`;
  if (startFrom === 'now') return now;
  if (startFrom === 'beginning') {
    return sql`select min(epoch) as epoch, ${emptySnapshot}::pg_snapshot as snapshot from eventlog.epochs`;
  }
  const since = sql.raw(placeOfTime(`(timestamptz '${startFrom.time.toISOString()}' - ${slack})`));
  return sql`
    select coalesce(first.epoch, now.epoch) as epoch,
      case when first.xid is null and first.epoch < now.epoch then ${emptySnapshot} when first.xid is null then now.snapshot::text
        else format('%s:%s:%s', coalesce(min(open.xid), first.xid), first.xid, string_agg(open.xid::text, ',' order by open.xid))
      end::pg_snapshot as snapshot
    from (${now}) as now left join (${since}) as first on true
    left join lateral (select xid::text::bigint as xid from pg_snapshot_xip(now.snapshot) as xid) as open
      on first.epoch = now.epoch and open.xid < first.xid
    group by now.epoch, now.snapshot::text, first.epoch, first.xid`;
}

const triesMax = 50;
const retryMs = 100;

/** SQLSTATEs of a database that is not migrated yet: no such schema, table, column or function. */
const unmigratedStates = new Set(['3F000', '42P01', '42703', '42883']);
/**
 * SQLSTATEs of a lock that was not available in time, and of a conflict with a change that this session cannot see yet.
 */
const passingStates = new Set(['55P03', '40001']);

/**
 * Starts a new epoch of the log when the database runs on a different server than before, after it was restored,
 * copied or moved.
 *
 * Transaction numbers of different servers cannot be compared. So this process neither reads nor writes on a server
 * until the log knows that server.
 */
export class EpochGuard implements ConnectionGuard {
  readonly #path: string;
  readonly #warn: (warning: PostgresWarning) => void;

  /**
   * @param path the database's path in the configuration
   * @param warn is called when a new epoch has begun
   */
  constructor(path: string, warn: (warning: PostgresWarning) => void) {
    this.#path = path;
    this.#warn = warn;
  }

  /**
   * Must be called for each new connection before it is used, outside of a transaction.
   *
   * @throws errors of `pg` when the epoch cannot be started; the connection must not be used then
   */
  async ensure(client: pg.ClientBase): Promise<void> {
    for (let tryCount = 1; ; tryCount++) {
      try {
        const { rows } = await client.query<{ epoch: number; begun: boolean }>(
          'select epoch, begun from eventlog.ensure_epoch()',
        );
        if (rows[0]?.begun === true) this.#tell(rows[0].epoch);
        return;
      } catch (error) {
        const state = error instanceof pg.DatabaseError ? error.code : undefined;
        // Migrating the database will start an epoch.
        if (unmigratedStates.has(state ?? '')) return;
        if (!passingStates.has(state ?? '') || tryCount === triesMax) throw error;
        await delay(retryMs);
      }
    }
  }

  #tell(epoch: number): void {
    const message = `the database runs on a different server than before (restored, copied or moved): epoch ${epoch} of its log begins`;
    this.#warn({ kind: 'new-epoch', database: this.#path, message });
  }
}
