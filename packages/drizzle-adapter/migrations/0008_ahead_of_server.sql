-- In which history the epoch was last found to be that of the server.
alter table eventlog.epochs add column history text;
--> statement-breakpoint
-- Begins a new epoch when the database is on another server than before, or the log is ahead of the server, and gives the
-- current one. Servers that were made of one another have the same identifier, and numbers of their own; so the log is looked at
-- once in each history.
-- To be called on every connection to a server that the caller does not know yet, before anything is written; again when a
-- lock was not had in time.
create or replace function eventlog.ensure_epoch(out epoch integer, out begun boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  own_identity text := eventlog.server_identity();
  latest eventlog.epochs;
begin
  select * into latest from eventlog.epochs e order by e.epoch desc limit 1;
  epoch := latest.epoch;
  begun := false;
  -- Where nothing can be written, none can begin.
  if current_setting('transaction_read_only')::boolean
    or latest.system_identifier is not distinct from own_identity and latest.history = eventlog.server_history() then
    return;
  end if;

  perform pg_advisory_xact_lock(hashtextextended('eventlog.epochs', 0));
  -- Without the row, the history is another one whenever it is asked for.
  insert into eventlog.server_run default values on conflict do nothing;
  select * into latest from eventlog.epochs e order by e.epoch desc limit 1;
  epoch := coalesce(latest.epoch, 1);
  begun := coalesce(latest.system_identifier <> own_identity, false) or eventlog.is_ahead_of_server(epoch);
  if begun then
    if latest.epoch is null then insert into eventlog.epochs (epoch) values (epoch); end if;
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
