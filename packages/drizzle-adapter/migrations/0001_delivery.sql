-- Delivery: the log is cut into slots by the models' ids; handlers move cursors over it.
alter table eventlog.events add column slot smallint;
--> statement-breakpoint
-- Whether the transaction may have had its xid before it read the model that it changed: then a later version can carry a
-- lower xid. The framework reads first and writes in one go; only what others write needs a second look.
alter table eventlog.events add column early_xid boolean not null default true;
--> statement-breakpoint
-- What lies beyond a cursor is one range of transactions; an index that grows at its end costs little to write.
create index events_delivery_idx on eventlog.events (xid, position) include (slot) where event_type is not null;
--> statement-breakpoint
-- Processes that deliver; one that does not say in time that it is alive loses its slots.
create table eventlog.processes (
  process_id text        primary key,
  until_date timestamptz not null
) with (fillfactor = 50);
--> statement-breakpoint
-- Who works on a slot. The token grows whenever a slot changes hands, and is checked by all that is written for it.
create table eventlog.slots (
  slot       smallint primary key,
  process_id text,
  token      bigint   not null default 0,
  -- Whether the holder before vanished without giving the slot back.
  abandoned  boolean  not null default false
) with (fillfactor = 50);
--> statement-breakpoint
insert into eventlog.slots (slot) select generate_series(0, 15);
--> statement-breakpoint
create table eventlog.handlers (
  handler text    primary key,
  paused  boolean not null default false
);
--> statement-breakpoint
-- Where each handler stands in each slot: what is visible in the snapshot is done or parked.
create table eventlog.cursors (
  handler  text        not null references eventlog.handlers on update cascade on delete cascade,
  slot     smallint    not null references eventlog.slots,
  snapshot pg_snapshot not null,
  primary key (handler, slot)
) with (fillfactor = 50);
--> statement-breakpoint
-- Events that wait for a handler, whole: they outlive the partitions of the log.
create table eventlog.parked_events (
  handler           text        not null references eventlog.handlers on update cascade on delete cascade,
  event_id          uuid        not null,
  slot              smallint    not null references eventlog.slots,
  model_name        text        not null,
  model_id          text        not null,
  model_version     bigint      not null,
  ordinal           integer     not null,
  event_type        text        not null,
  event             jsonb       not null,
  attempts          integer     not null,
  error             text,
  dead              boolean     not null,
  suspect           boolean     not null,
  parked_date       timestamptz not null default clock_timestamp(),
  next_attempt_date timestamptz,
  primary key (handler, event_id)
);
--> statement-breakpoint
-- The first parked event of a model.
create index parked_events_model_idx on eventlog.parked_events (slot, handler, model_name, model_id, model_version, ordinal);
--> statement-breakpoint
-- The models that have parked events, so that what is due is found without looking at all that waits.
create table eventlog.parked_models (
  slot       smallint not null,
  handler    text     not null references eventlog.handlers on update cascade on delete cascade,
  model_name text     not null,
  model_id   text     not null,
  -- From when on the model's first parked event may be tried; null when that one is a dead letter.
  due_date   timestamptz,
  primary key (slot, handler, model_name, model_id)
) with (fillfactor = 50);
--> statement-breakpoint
create index parked_models_due_idx on eventlog.parked_models (slot, handler, due_date) where due_date is not null;
--> statement-breakpoint
-- Brings the rows of models up to date with their parked events; to be called by whatever has changed any of those.
-- The first statement waits for others that change the same models, and the next ones see what those committed.
create function eventlog.settle_parked_models(slots smallint[], handlers text[], model_names text[], model_ids text[])
returns void
language plpgsql strict as $$
begin
  insert into eventlog.parked_models (slot, handler, model_name, model_id)
    select distinct * from unnest(slots, handlers, model_names, model_ids) order by 1, 2, 3, 4
    on conflict (slot, handler, model_name, model_id) do update set slot = excluded.slot;

  update eventlog.parked_models m set due_date = head.due_date
    from (select distinct * from unnest(slots, handlers, model_names, model_ids)) as given (slot, handler, model_name, model_id)
    cross join lateral (
      select case when not p.dead then coalesce(p.next_attempt_date, p.parked_date) end as due_date
      from eventlog.parked_events p
      where (p.slot, p.handler, p.model_name, p.model_id) = (given.slot, given.handler, given.model_name, given.model_id)
      order by p.model_version, p.ordinal limit 1) head
    where (m.slot, m.handler, m.model_name, m.model_id) = (given.slot, given.handler, given.model_name, given.model_id)
      and m.due_date is distinct from head.due_date;

  delete from eventlog.parked_models m
    using unnest(slots, handlers, model_names, model_ids) as given (slot, handler, model_name, model_id)
    where (m.slot, m.handler, m.model_name, m.model_id) = (given.slot, given.handler, given.model_name, given.model_id)
      and not exists (
        select from eventlog.parked_events p
        where (p.slot, p.handler, p.model_name, p.model_id) = (m.slot, m.handler, m.model_name, m.model_id));
end
$$;
--> statement-breakpoint
-- Says that a process is alive, gives back and takes slots up to its fair share, and tells which it holds.
create function eventlog.renew_leases(own_id text, lease interval)
returns table (slot smallint, token bigint, abandoned boolean)
language plpgsql as $$
declare
  share integer;
begin
  perform pg_advisory_xact_lock(hashtextextended('eventlog.slots', 0));
  insert into eventlog.processes as p (process_id, until_date) values (own_id, clock_timestamp() + lease)
    on conflict (process_id) do update set until_date = excluded.until_date;

  delete from eventlog.processes p where p.until_date < clock_timestamp();
  update eventlog.slots s set process_id = null, token = s.token + 1, abandoned = true
    where s.process_id is not null
      and not exists (select from eventlog.processes p where p.process_id = s.process_id);

  select ceil((select count(*) from eventlog.slots)::numeric / count(*)) into share from eventlog.processes;
  update eventlog.slots s set process_id = null, token = s.token + 1
    where s.slot in (select own.slot from eventlog.slots own where own.process_id = own_id
                     order by own.slot offset share);
  update eventlog.slots s set process_id = own_id, token = s.token + 1
    where s.slot in (
      select free.slot from eventlog.slots free where free.process_id is null order by free.slot
      limit share - (select count(*) from eventlog.slots own where own.process_id = own_id));

  return query select s.slot, s.token, s.abandoned from eventlog.slots s where s.process_id = own_id order by s.slot;
  update eventlog.slots s set abandoned = false where s.process_id = own_id and s.abandoned;
end
$$;
