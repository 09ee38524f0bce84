-- The log: append only, partitioned by month so that retention is dropping a partition.
create sequence eventlog.events_position_seq as bigint;
--> statement-breakpoint
create table eventlog.events (
  id            uuid        not null,
  xid           xid8        not null default pg_current_xact_id(),
  position      bigint      not null default nextval('eventlog.events_position_seq'),
  action_id     uuid        not null,
  ordinal       integer     not null,
  namespace     text        not null,
  action_name   text        not null,
  action_params jsonb       not null,
  principal     text        not null,
  model_id      text,
  model_name    text,
  model_version bigint,
  event_type    text,
  payload       jsonb,
  headers       jsonb       not null,
  started_date  timestamptz not null,
  created_date  timestamptz not null default now(),
  slot          smallint,
  -- Whether the transaction may have had its xid before it read the model that it changed: then a later version can carry a
  -- lower xid. The framework reads first and writes in one go; only what others write needs a second look.
  early_xid     boolean     not null default true,
  -- The default is the current epoch; it is changed when a new one begins, so that no insert names it.
  epoch         integer     not null default 1,
  -- Finds the rows of an action; a unique index of a partitioned table must hold the partition key.
  primary key (action_id, ordinal, created_date)
) partition by range (created_date);
--> statement-breakpoint
comment on table eventlog.events is
  'One row per event, or one without event_type per action that attached none; never updated';
--> statement-breakpoint
-- The history of a model.
create index events_model_idx on eventlog.events (model_id, model_version, ordinal);
--> statement-breakpoint
-- Ids are UUIDs of version 7 and grow with time, as the table does: a block range index finds one and costs next to nothing.
create index events_id_idx on eventlog.events using brin (id) with (pages_per_range = 16, autosummarize = on);
--> statement-breakpoint
-- What lies beyond a cursor is one range of one epoch; an index that grows at its end costs little to write.
create index events_history_idx on eventlog.events (epoch, xid, position) include (slot) where event_type is not null;
--> statement-breakpoint
-- Takes what arrives when partitions were not created in time, so that no action fails because of it.
create table eventlog.events_default partition of eventlog.events default;
--> statement-breakpoint
-- Creates the partitions of this month and of the next ones, and returns whether it must be called again to finish. Safe to call
-- at any time, and by several processes at once. To be called again when a lock was not available in time, because the log is
-- being read. Runs as the owner of the log, because no other role may create partitions; roles are granted the call by name.
--
-- A table that is created first and attached then needs no lock that conflicts with commits. But attaching it searches the default
-- partition for its rows, under a lock that blocks commits and reads. Beyond 8 MB, about 10 ms of search, only months to come are
-- attached, with a constraint which proves that the default partition contains none of their rows. Adding the constraint,
-- validating it beside commits, and using it are three calls, because each must release its locks. The last call drops the
-- constraint, which would refuse events of those months. They are at least a week away, so that there is time for another call if
-- these are interrupted.
create function eventlog.create_partitions(months_ahead integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  this_month timestamp := date_trunc('month', now() at time zone 'UTC');
  first_to_come timestamp := date_trunc('month', now() at time zone 'UTC' + interval '7 days') + interval '1 month';
  is_filled boolean := pg_relation_size('eventlog.events_default') > 8388608;
  missing timestamp[];
  -- The first of the missing months that are to come.
  next_missing timestamp;
  -- Whether the constraint is validated; null if there is none.
  is_proven boolean;
  month timestamp;
  partition_name text;
begin
  perform pg_advisory_xact_lock(hashtextextended('eventlog.partitions', 0));
  missing := array(
    select each from generate_series(this_month, this_month + make_interval(months => months_ahead), interval '1 month') each
    where to_regclass('eventlog.events_' || to_char(each, 'YYYY_MM')) is null);
  next_missing := (select min(each) from unnest(missing) each where each >= first_to_come);
  select convalidated into is_proven from pg_constraint
    where conrelid = 'eventlog.events_default'::regclass and conname = 'events_default_past';

  if is_filled and next_missing is not null then
    if is_proven is null then
      execute format('alter table eventlog.events_default add constraint events_default_past check (created_date < %L) not valid',
        next_missing at time zone 'UTC');
      return true;
    elsif not is_proven then
      begin
        alter table eventlog.events_default validate constraint events_default_past;
        return true;
      exception when check_violation or query_canceled then
        raise warning 'eventlog.events_default keeps taking rows of the months to come: %', sqlerrm;
      end;
    end if;
  end if;

  foreach month in array missing loop
    continue when is_filled and (month < first_to_come or is_proven is not true);
    partition_name := 'events_' || to_char(month, 'YYYY_MM');
    begin
      execute format('create table eventlog.%I (like eventlog.events including defaults including constraints)', partition_name);
      execute format('alter table eventlog.events attach partition eventlog.%I for values from (%L) to (%L)',
        partition_name, month at time zone 'UTC', (month + interval '1 month') at time zone 'UTC');
    exception when check_violation then
      raise warning 'rows of % are in eventlog.events_default, which keeps taking them', partition_name;
    end;
  end loop;
  if is_proven is not null then
    alter table eventlog.events_default drop constraint events_default_past;
  end if;
  return false;
end
$$;
--> statement-breakpoint
-- Undoes a statement that has written already when a guarded row turns out to be stale.
create function eventlog.raise_stale(change integer) returns integer
language plpgsql as $$
begin
  raise exception using errcode = 'FW001', message = change::text,
    hint = 'A row had another version than expected; the framework runs the action again.';
end
$$;
--> statement-breakpoint
revoke execute on function eventlog.create_partitions(integer) from public;
