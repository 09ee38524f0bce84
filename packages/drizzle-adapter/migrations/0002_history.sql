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
-- The history to which what is read now belongs; what was read in another one may be ahead of the database. It consists of:
-- the row of server_run, with the transaction that wrote it, because a dump contains the row, and a restore writes it in another;
-- the database, with the transaction that created, renamed or changed it, because copied files contain the row as it is;
-- and the start of the server, because the files of a clean stop may be put back.
-- Without the row, each call returns a new history, until the first renewal of leases: nothing that was read is valid.
create function eventlog.server_history() returns text
language plpgsql stable as $$
declare
  run text;
begin
  if not pg_is_in_recovery() then select r.id || '/' || r.xmin into run from eventlog.server_run r; end if;
  return (select concat_ws('/', coalesce(run, gen_random_uuid()::text), d.oid, d.xmin, extract(epoch from pg_postmaster_start_time()))
    from pg_database d where d.datname = current_database());
end
$$;
--> statement-breakpoint
-- Refuses what a session of the framework writes that was opened before a restore in place, which drops or truncates server_run and
-- leaves the session open. The session has noted the file of the table; other programs note nothing, and are not refused. A pooler
-- that resets a session leaves an empty note.
alter table eventlog.events add constraint events_run_check
  check (nullif(current_setting('framework.run', true), '') = pg_relation_filenode('eventlog.server_run')::text);
--> statement-breakpoint
-- The servers on which the log was written, one after the other: transaction numbers compare within one epoch only.
create table eventlog.epochs (
  epoch             integer     primary key,
  system_identifier text,
  -- In which history the epoch was last found to be that of the server.
  history           text,
  started_date      timestamptz not null default clock_timestamp()
);
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
-- Begins a new epoch when the database is on another server than before, or the log is ahead of the server, and gives the
-- current one. Servers that were made of one another have the same identifier, and numbers of their own; so the log is looked at
-- once in each history.
-- To be called on every connection to a server that the caller does not know yet, before anything is written; again when a
-- lock was not had in time.
create function eventlog.ensure_epoch(out epoch integer, out begun boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  own_identity text := eventlog.server_identity();
  -- What is written now belongs to this epoch, even while a restore has emptied the table of epochs.
  written integer := (
    select pg_get_expr(d.adbin, d.adrelid)::integer from pg_attrdef d join pg_attribute a on (a.attrelid, a.attnum) = (d.adrelid, d.adnum)
    where d.adrelid = 'eventlog.events'::regclass and a.attname = 'epoch');
  latest eventlog.epochs;
begin
  select * into latest from eventlog.epochs e order by e.epoch desc limit 1;
  epoch := latest.epoch;
  begun := false;
  -- Where nothing can be written, none can begin.
  if current_setting('transaction_read_only')::boolean
    or latest.system_identifier is not distinct from own_identity and latest.history = eventlog.server_history()
      and latest.epoch >= written then
    return;
  end if;

  perform pg_advisory_xact_lock(hashtextextended('eventlog.epochs', 0));
  -- Without the row, the history is another one whenever it is asked for.
  insert into eventlog.server_run default values on conflict do nothing;
  select * into latest from eventlog.epochs e order by e.epoch desc limit 1;
  epoch := greatest(latest.epoch, written);
  begun := coalesce(latest.system_identifier <> own_identity, false) or eventlog.is_ahead_of_server(epoch);
  if begun then
    insert into eventlog.epochs (epoch) values (epoch) on conflict do nothing;
    epoch := epoch + 1;
    -- A copy brings the row along.
    insert into eventlog.server_run default values on conflict ((true)) do update set id = excluded.id;
    -- Waits for whoever has written to the log already; without partitions, whose defaults are not used.
    execute format('alter table only eventlog.events alter column epoch set default %s', epoch);
  end if;
  insert into eventlog.epochs as e (epoch, system_identifier, history)
    values (epoch, own_identity, eventlog.server_history())
    on conflict on constraint epochs_pkey do update
      set system_identifier = excluded.system_identifier, history = excluded.history
      where (e.system_identifier, e.history) is distinct from (excluded.system_identifier, excluded.history);
end
$$;
--> statement-breakpoint
select eventlog.ensure_epoch();
