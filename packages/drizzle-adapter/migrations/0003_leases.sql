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
-- Says that a process is alive, has these handlers and knows these shards, gives back what it names, takes slots up to its share
-- of each handler, and tells which it holds.
create function eventlog.renew_leases(own_id text, own_handlers text[], own_shards text[], lease interval, given_back uuid[])
returns table (handler text, slot smallint, token uuid, abandoned boolean, surplus boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  own_history text;
  now_date timestamptz;
  was_late boolean;
begin
  perform pg_advisory_xact_lock(hashtextextended('eventlog.slots', 0));
  insert into eventlog.server_run default values on conflict do nothing;
  own_history := eventlog.server_history();
  now_date := clock_timestamp();
  -- Gives back what the process has finished with, and what is of handlers that it has no more.
  update eventlog.leases l set process_id = null, token = gen_random_uuid()
    where l.process_id = own_id and (l.token = any(given_back) or l.handler <> all(own_handlers));
  -- What was said in another history, or by a clock that has gone back since, counts from now on.
  update eventlog.processes p set history = own_history, renewed_date = now_date,
      until_date = now_date + (p.until_date - p.renewed_date)
    where p.renewed_date > now_date or p.history <> own_history;
  was_late := coalesce((select p.until_date < now_date from eventlog.processes p where p.process_id = own_id), false);
  insert into eventlog.processes as p (process_id, handlers, shards, history, renewed_date, until_date)
    values (own_id, own_handlers, own_shards, own_history, now_date, now_date + lease)
    on conflict (process_id) do update
      set handlers = excluded.handlers, shards = excluded.shards, history = excluded.history,
        renewed_date = excluded.renewed_date, until_date = excluded.until_date;

  -- When this process could not renew in time though it lives, others could not either: that they are late says nothing
  -- about them yet.
  if was_late then
    update eventlog.processes p set until_date = now_date + lease, renewed_date = now_date where p.until_date < now_date;
  end if;
  delete from eventlog.processes p where p.until_date < now_date;
  -- Who renews lives, and keeps what it held: under other tokens where the ones before hold no more.
  update eventlog.leases l set token = gen_random_uuid(), history = own_history
    where l.process_id = own_id and (was_late or l.history <> own_history);

  -- Who does not renew has vanished, in whichever history its leases were given.
  update eventlog.leases l set process_id = null, token = gen_random_uuid(), abandoned = true
    where l.process_id is not null
      and not exists (select from eventlog.processes p where p.process_id = l.process_id);

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

  -- What is beyond the share stays with the process until it has finished there.
  return query select l.handler, l.slot, l.token, l.abandoned,
      row_number() over (partition by l.handler order by l.slot) > coalesce(shares.share, 0)
    from eventlog.leases l left join eventlog.lease_shares(own_id) shares using (handler)
    where l.process_id = own_id order by l.slot, l.handler;
end
$$;
--> statement-breakpoint
-- Drops a partition unless a cursor has not passed all of its events; whether it did. One look at the index tells: cursors
-- that are beyond the highest transaction have passed every one. Events that wait in blocked models move to the default partition;
-- the partition stays while those are more than 1,000 or 4 MB, as commits wait for them to be moved, or while more than 100,000
-- models are blocked, as looking for their events would take too long.
create function eventlog.drop_partition(partition_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  last_epoch integer;
  last_xid xid8;
  waiting_places tid[];
  waiting_bytes bigint;
  waiting eventlog.events[];
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
  if exists (select from eventlog.blocked_models offset 100000) then return false; end if;
  -- Commits are not held up by the search, only by what comes after it.
  execute format('
    select array_agg(each.ctid), sum(each.bytes) from (
      select e.ctid, e.bytes from (
        select distinct on (model_id, model_name) * from eventlog.blocked_models
        order by model_id, model_name, model_version, ordinal) b
      cross join lateral (
        select e.ctid, pg_column_size(e.payload) + pg_column_size(e.action_params) + pg_column_size(e.headers) as bytes
        from eventlog.%I e
        where e.model_id = b.model_id and e.model_name = b.model_name and e.event_type is not null
          and (e.model_version, e.ordinal) >= (b.model_version, b.ordinal)
        order by e.model_version, e.ordinal limit 1001) e
      limit 1001) each', partition_name) into waiting_places, waiting_bytes;
  if cardinality(waiting_places) > 1000 or waiting_bytes > 4194304 then return false; end if;
  execute format('select array_agg(e::eventlog.events) from eventlog.%I e where e.ctid = any($1)', partition_name)
    into waiting using waiting_places;
  execute format('alter table eventlog.events detach partition eventlog.%I', partition_name);
  execute format('drop table eventlog.%I', partition_name);
  insert into eventlog.events select * from unnest(waiting);
  return true;
end
$$;
--> statement-breakpoint
-- Deletes a limited number of old rows from the default partition, which cannot be dropped, and tells how many; keeps what a
-- cursor has not passed, and what waits in blocked models.
create function eventlog.trim_default_partition(before_date timestamptz, rows_max integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  first_epoch integer;
  first_xid xid8;
  deleted integer;
begin
  -- No handler is to begin before events that are just being deleted.
  perform pg_advisory_xact_lock(hashtextextended('eventlog.handlers', 0));
  select c.epoch, pg_snapshot_xmin(c.snapshot) into first_epoch, first_xid from eventlog.cursors c
    order by c.epoch, pg_snapshot_xmin(c.snapshot) limit 1;
  delete from eventlog.events_default d where d.ctid = any(array(
    select e.ctid from eventlog.events_default e
    where e.created_date < before_date and (first_epoch is null or (e.epoch, e.xid) < (first_epoch, first_xid))
      and not exists (
        select from eventlog.blocked_models b
        where (b.slot, b.model_name, b.model_id) = (e.slot, e.model_name, e.model_id)
          and (b.model_version, b.ordinal) <= (e.model_version, e.ordinal))
    limit rows_max));
  get diagnostics deleted = row_count;
  return deleted;
end
$$;
--> statement-breakpoint
revoke execute on function eventlog.drop_partition(text), eventlog.trim_default_partition(timestamptz, integer) from public;
