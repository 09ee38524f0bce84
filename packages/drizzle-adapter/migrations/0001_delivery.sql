-- Delivery: the log is cut into slots by the models' ids; handlers move cursors over it.
create table eventlog.slots (
  slot smallint primary key
);
--> statement-breakpoint
insert into eventlog.slots (slot) select generate_series(0, 15);
--> statement-breakpoint
-- Processes that deliver, the handlers that they have, and the shards that they know; one that does not say in time that it is
-- alive loses its slots.
create table eventlog.processes (
  process_id   text        primary key,
  handlers     text[]      not null,
  shards       text[]      not null,
  -- In which history it renewed last.
  history      text        not null,
  renewed_date timestamptz not null,
  until_date   timestamptz not null
) with (fillfactor = 50);
--> statement-breakpoint
create table eventlog.handlers (
  handler text    primary key,
  paused  boolean not null default false
);
--> statement-breakpoint
-- Every name that a handler has or had, and the permanent id under which all that is its own is kept.
create table eventlog.handler_names (
  name    text primary key,
  handler text not null references eventlog.handlers on update cascade on delete cascade
);
--> statement-breakpoint
create index handler_names_handler_idx on eventlog.handler_names (handler);
--> statement-breakpoint
-- Where each handler stands in each slot: what is visible in the snapshot is done or parked.
create table eventlog.cursors (
  handler  text        not null references eventlog.handlers on update cascade on delete cascade,
  slot     smallint    not null references eventlog.slots,
  snapshot pg_snapshot not null,
  epoch    integer     not null default 1,
  primary key (handler, slot)
) with (fillfactor = 50);
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
  -- Calls that did not count, because storage or another shard could not serve: they lengthen the wait before the next one.
  uncounted         integer     not null default 0,
  -- The counted attempts of which nobody has said how they ended: whoever gave one up takes its count back, once.
  open_attempts     text[]      not null default '{}',
  primary key (handler, event_id)
);
--> statement-breakpoint
-- The first parked event of a model.
create index parked_events_model_idx on eventlog.parked_events (slot, handler, model_name, model_id, model_version, ordinal);
--> statement-breakpoint
-- Pages of what is parked, of the dead letters, and of those of one handler: the oldest first.
create index parked_events_date_idx on eventlog.parked_events (parked_date, event_id, handler);
--> statement-breakpoint
create index parked_events_dead_idx on eventlog.parked_events (parked_date, event_id, handler) where dead;
--> statement-breakpoint
create index parked_events_dead_of_handler_idx on eventlog.parked_events (handler, parked_date, event_id) where dead;
--> statement-breakpoint
-- Where an event, or a model, stands for all handlers.
create index parked_events_event_idx on eventlog.parked_events (event_id);
--> statement-breakpoint
create index parked_events_of_model_idx on eventlog.parked_events (model_id);
--> statement-breakpoint
-- Dead letters of a handler by the first line of their errors: groups are found without reading what is in them.
create index parked_events_error_idx on eventlog.parked_events
  (handler, "left"(split_part(coalesce(error, ''), E'\n', 1), 200), parked_date, event_id) where dead;
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
