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
-- Runs as the owner of the log, because nobody else may create partitions; roles that may call it are granted that by name.
-- Creates the partitions of this month and of the next ones; safe to call again, and by several at once. Commits are not held
-- up: a table that is made by itself is attached without a lock that conflicts with them. To be called again when a lock was
-- not had in time, because somebody reads the log.
create function eventlog.create_partitions(months_ahead integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
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
