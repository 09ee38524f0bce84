-- Which server this is: another one after a logical restore or copy, the same after a physical failover. Null where it is hidden.
create function eventlog.server_identity() returns text
language plpgsql stable as $$
begin
  return (select system_identifier::text from pg_control_system());
exception when insufficient_privilege or undefined_function or feature_not_supported then
  return null;
end
$$;
--> statement-breakpoint
-- One row: what a run of the server is called. PostgreSQL empties the table with every recovery from a crash, on a standby that
-- takes over and in a restored copy of the files, which are the events after which the server may give transaction numbers
-- again that somebody has seen.
create unlogged table eventlog.server_run (
  id uuid not null default gen_random_uuid()
);
--> statement-breakpoint
create unique index server_run_one_idx on eventlog.server_run ((true));
--> statement-breakpoint
insert into eventlog.server_run default values;
--> statement-breakpoint
-- The history to which what is read now belongs; what was learnt in another one may be ahead of the database. It ends with each
-- start of the server as well, as its files may be older ones that were put back. Without the row it is a new one whenever it is
-- asked for, until somebody renews leases: nothing that was learnt holds.
create function eventlog.server_history() returns text
language plpgsql stable as $$
declare
  run uuid;
begin
  if not pg_is_in_recovery() then select r.id into run from eventlog.server_run r; end if;
  return coalesce(run, gen_random_uuid()) || '/' || extract(epoch from pg_postmaster_start_time());
end
$$;
--> statement-breakpoint
-- The servers on which the log was written, one after the other: transaction numbers compare within one epoch only.
create table eventlog.epochs (
  epoch             integer     primary key,
  system_identifier text,
  started_date      timestamptz not null default clock_timestamp()
);
--> statement-breakpoint
-- The default of the column is the current epoch; it is changed when a new one begins, so that no insert names it.
alter table eventlog.events add column epoch integer not null default 1;
--> statement-breakpoint
alter table eventlog.cursors add column epoch integer not null default 1;
--> statement-breakpoint
-- Whether transactions are noted that this server has not had yet: then the database was copied from another one.
create function eventlog.is_ahead_of_server(of_epoch integer) returns boolean
language sql stable as $$
  select exists (
      select from eventlog.cursors
      where epoch = of_epoch and pg_snapshot_xmax(snapshot) > pg_snapshot_xmax(pg_current_snapshot()))
    or exists (
      select from eventlog.events
      where epoch = of_epoch and event_type is not null and xid > pg_snapshot_xmax(pg_current_snapshot()))
$$;
--> statement-breakpoint
-- Begins a new epoch when the database is on another server than before, and gives the current one.
-- To be called on every connection to a server that the caller does not know yet, before anything is written; again when a
-- lock was not had in time.
create function eventlog.ensure_epoch(out epoch integer, out begun boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  own_identity text := eventlog.server_identity();
  latest eventlog.epochs;
begin
  select * into latest from eventlog.epochs e order by e.epoch desc limit 1;
  if latest.system_identifier = own_identity or pg_is_in_recovery() then
    epoch := latest.epoch;
    begun := false;
    return;
  end if;

  perform pg_advisory_xact_lock(hashtextextended('eventlog.epochs', 0));
  select * into latest from eventlog.epochs e order by e.epoch desc limit 1;
  epoch := coalesce(latest.epoch, 1);
  begun := case
    when latest.system_identifier is not null and own_identity is not null
      then latest.system_identifier <> own_identity
    else eventlog.is_ahead_of_server(epoch)
  end;
  if begun then
    if latest.epoch is null then insert into eventlog.epochs (epoch) values (epoch); end if;
    epoch := epoch + 1;
    -- A copy brings the row along.
    insert into eventlog.server_run default values on conflict ((true)) do update set id = excluded.id;
    -- Waits for whoever has written to the log already; without partitions, whose defaults are not used.
    execute format('alter table only eventlog.events alter column epoch set default %s', epoch);
  end if;
  insert into eventlog.epochs as e (epoch, system_identifier) values (epoch, own_identity)
    on conflict on constraint epochs_pkey do update set system_identifier = excluded.system_identifier
    where e.system_identifier is distinct from excluded.system_identifier;
end
$$;
--> statement-breakpoint
select eventlog.ensure_epoch();
--> statement-breakpoint
-- What lies beyond a cursor is one range of one epoch. A log that holds events gets this index without holding anybody up,
-- partition by partition, when the migrations are done; until then the old one serves.
do $$
begin
  if not exists (select from eventlog.events) then
    drop index eventlog.events_delivery_idx;
    create index events_history_idx on eventlog.events (epoch, xid, position) include (slot) where event_type is not null;
  end if;
end
$$;
--> statement-breakpoint
-- Every name that a handler has or had, and the permanent id under which all that is its own is kept.
create table eventlog.handler_names (
  name    text primary key,
  handler text not null references eventlog.handlers on update cascade on delete cascade
);
--> statement-breakpoint
insert into eventlog.handler_names (name, handler) select handler, handler from eventlog.handlers;
--> statement-breakpoint
create index handler_names_handler_idx on eventlog.handler_names (handler);
--> statement-breakpoint
-- Processes say which handlers they have, and which shards they know; one of an earlier release says nothing.
alter table eventlog.processes add column handlers text[], add column shards text[] not null default '{}',
  add column renewed_date timestamptz;
--> statement-breakpoint
-- Who works on a slot for a handler. The token is another one whenever that changes, and is checked by all that is written;
-- a lease of another history is nobody's.
create table eventlog.leases (
  handler    text     not null references eventlog.handlers on update cascade on delete cascade,
  slot       smallint not null references eventlog.slots,
  process_id text,
  token      uuid     not null default gen_random_uuid(),
  history    text,
  -- Whether the holder before vanished without giving the slot back; stays true for as long as the lease, because its
  -- holder may not have received the answer that said so first.
  abandoned  boolean  not null default false,
  primary key (handler, slot)
) with (fillfactor = 50);
--> statement-breakpoint
insert into eventlog.leases (handler, slot, abandoned)
select handler, slot, abandoned from eventlog.handlers cross join eventlog.slots;
--> statement-breakpoint
-- How many slots a process may hold for each of its handlers: its fair share among the processes that have the handler, but
-- none while one of them knows all of its shards and more. What needs a shard that the process lacks would wait there.
create function eventlog.lease_shares(own_id text) returns table (handler text, share numeric)
language sql stable as $$
  select own.handler, ceil((select count(*) from eventlog.slots) / count(*)::numeric)
  from eventlog.processes self cross join unnest(self.handlers) own (handler)
    join eventlog.processes p on own.handler = any(p.handlers)
  where self.process_id = own_id and not exists (
    select from eventlog.processes wider
    where own.handler = any(wider.handlers) and wider.shards @> p.shards and not p.shards @> wider.shards)
  group by own.handler having bool_or(p.process_id = own_id)
$$;
--> statement-breakpoint
-- Says that a process is alive, has these handlers and knows these shards, gives back and takes slots up to its share of each
-- handler, and tells which it holds.
create function eventlog.renew_leases(own_id text, own_handlers text[], own_shards text[], lease interval)
returns table (handler text, slot smallint, token uuid, abandoned boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  own_history text;
  now_date timestamptz;
  was_late boolean;
  has_moved boolean;
begin
  perform pg_advisory_xact_lock(hashtextextended('eventlog.slots', 0));
  insert into eventlog.server_run default values on conflict do nothing;
  own_history := eventlog.server_history();
  now_date := clock_timestamp();
  -- What was said by a clock that has gone back since, such as that of the server before, counts from now on.
  update eventlog.processes p set until_date = now_date + (p.until_date - p.renewed_date), renewed_date = now_date
    where p.renewed_date > now_date;
  was_late := (select p.until_date < now_date from eventlog.processes p where p.process_id = own_id);
  has_moved := exists (select from eventlog.leases l where l.process_id is not null and l.history <> own_history);
  insert into eventlog.processes as p (process_id, handlers, shards, renewed_date, until_date)
    values (own_id, own_handlers, own_shards, now_date, now_date + lease)
    on conflict (process_id) do update
      set handlers = excluded.handlers, shards = excluded.shards,
        renewed_date = excluded.renewed_date, until_date = excluded.until_date;

  -- When this process could not renew in time though it lives, or the database has just moved or started, others could not
  -- either: that they are late says nothing about them yet.
  if was_late or has_moved then
    update eventlog.processes p set until_date = now_date + lease, renewed_date = now_date where p.until_date < now_date;
    update eventlog.leases l set token = gen_random_uuid(), abandoned = false where l.process_id = own_id;
  end if;
  delete from eventlog.processes p where p.until_date < now_date;

  -- Processes of the release before lease whole slots. Nobody else works while one of them may still do so.
  update eventlog.leases l set abandoned = true from eventlog.slots s
    where s.slot = l.slot and s.process_id is not null
      and not exists (select from eventlog.processes p where p.process_id = s.process_id);
  update eventlog.slots s set process_id = null, token = s.token + 1
    where s.process_id is not null
      and not exists (select from eventlog.processes p where p.process_id = s.process_id);
  if exists (select from eventlog.processes p where p.handlers is null) then return; end if;

  update eventlog.leases l set process_id = null, token = gen_random_uuid()
    where l.process_id is not null and l.history <> own_history;
  update eventlog.leases l set process_id = null, token = gen_random_uuid(), abandoned = true
    where l.process_id is not null
      and not exists (select from eventlog.processes p where p.process_id = l.process_id);

  -- Gives back what is beyond the share, and what is of handlers that the process has no more.
  with shares as (select * from eventlog.lease_shares(own_id)), held as (
    select l.handler, l.slot, row_number() over (partition by l.handler order by l.slot) as place
    from eventlog.leases l where l.process_id = own_id
  )
  update eventlog.leases l set process_id = null, token = gen_random_uuid(), abandoned = false
    from held left join shares using (handler)
    where (l.handler, l.slot) = (held.handler, held.slot) and held.place > coalesce(shares.share, 0);

  with shares as (
    select own.handler, own.share
      - (select count(*) from eventlog.leases l where l.handler = own.handler and l.process_id = own_id) as count
    from eventlog.lease_shares(own_id) own
  ), free as (
    select l.handler, l.slot, row_number() over (partition by l.handler order by l.slot) as place
    from eventlog.leases l where l.process_id is null
  )
  update eventlog.leases l set process_id = own_id, token = gen_random_uuid(), history = own_history
    from free join shares using (handler)
    where (l.handler, l.slot) = (free.handler, free.slot) and free.place <= shares.count;

  return query select l.handler, l.slot, l.token, l.abandoned from eventlog.leases l
    where l.process_id = own_id order by l.slot, l.handler;
end
$$;
--> statement-breakpoint
-- What a process of the release before asks: it gets no slot any more, gives back those that it has, and stands by.
create or replace function eventlog.renew_leases(own_id text, lease interval)
returns table (slot smallint, token bigint, abandoned boolean)
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('eventlog.slots', 0));
  delete from eventlog.processes p where p.process_id = own_id;
  update eventlog.slots s set process_id = null, token = s.token + 1 where s.process_id = own_id;
end
$$;
--> statement-breakpoint
-- Creates the partitions of this month and of the next ones; safe to call again, and by several at once. Commits are not held
-- up: a table that is made by itself is attached without a lock that conflicts with them. To be called again when a lock was
-- not had in time, because somebody reads the log.
create or replace function eventlog.create_partitions(months_ahead integer) returns void
language plpgsql set lock_timeout = '100ms' as $$
declare
  first_day timestamptz := date_trunc('month', now(), 'UTC');
  month timestamptz;
  next_month timestamptz;
  partition_name text;
begin
  perform pg_advisory_xact_lock(hashtextextended('eventlog.partitions', 0));
  for offset_months in 0..months_ahead loop
    month := (first_day at time zone 'UTC' + make_interval(months => offset_months)) at time zone 'UTC';
    next_month := (month at time zone 'UTC' + interval '1 month') at time zone 'UTC';
    partition_name := 'events_' || to_char(month at time zone 'UTC', 'YYYY_MM');
    continue when to_regclass('eventlog.' || partition_name) is not null;
    begin
      execute format('create table eventlog.%I (like eventlog.events including defaults)', partition_name);
      execute format('alter table eventlog.events attach partition eventlog.%I for values from (%L) to (%L)',
        partition_name, month, next_month);
    exception when check_violation then
      raise warning 'rows of % stand in eventlog.events_default, which keeps taking them', partition_name;
    end;
  end loop;
end
$$;
--> statement-breakpoint
-- Drops a partition unless a cursor has not passed all of its events; whether it did. One look at the index tells: cursors
-- that are beyond the highest transaction have passed every one.
create function eventlog.drop_partition(partition_name text) returns boolean
language plpgsql set lock_timeout = '100ms' as $$
declare
  last_epoch integer;
  last_xid xid8;
begin
  perform pg_advisory_xact_lock(hashtextextended('eventlog.partitions', 0));
  -- No handler is to begin before events that are just being dropped.
  perform pg_advisory_xact_lock(hashtextextended('eventlog.handlers', 0));
  if not exists (select from pg_inherits where inhparent = 'eventlog.events'::regclass
                 and inhrelid = to_regclass(format('eventlog.%I', partition_name))) then
    return false;
  end if;
  -- Waits for whoever has written to this partition and keeps others from it, so that nothing is committed to it after the
  -- look. The log can be read, and other partitions written to.
  execute format('lock table eventlog.%I in share mode', partition_name);
  execute format('select epoch, xid from eventlog.%I where event_type is not null order by epoch desc, xid desc limit 1',
    partition_name) into last_epoch, last_xid;
  if exists (select from eventlog.cursors c
             where (c.epoch, pg_snapshot_xmin(c.snapshot)) <= (last_epoch, last_xid)) then
    return false;
  end if;
  execute format('alter table eventlog.events detach partition eventlog.%I', partition_name);
  execute format('drop table eventlog.%I', partition_name);
  return true;
end
$$;
