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
-- Where each handler stands in each slot: what is visible in the snapshot is done, or left to a blocked model.
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
-- Models whose events wait for a handler, one row each: everything before the bound is done, and the events from there on are in the log.
create table eventlog.blocked_models (
  handler       text        not null references eventlog.handlers on update cascade on delete cascade,
  slot          smallint    not null references eventlog.slots,
  model_name    text        not null,
  model_id      text        not null,
  -- The bound, which belongs to what is still to be done.
  model_version bigint      not null,
  ordinal       integer     not null,
  -- The event at the bound, if it has failed; null when the model only has to be read on from here.
  event_id      uuid,
  event_type    text,
  attempts      integer     not null default 0,
  -- Calls that did not count, because storage or another shard could not serve: they lengthen the wait before the next one.
  uncounted     integer     not null default 0,
  -- The attempts whose end is not recorded, and those of them that count from their beginning.
  open_attempts text[]      not null default '{}',
  lone_attempts text[]      not null default '{}',
  error         text,
  dead          boolean     not null default false,
  -- Later events that are done although the one at the bound has failed.
  done_ids      uuid[]      not null default '{}',
  blocked_date  timestamptz not null default clock_timestamp(),
  -- From when on the event may be tried, or the model be read on; null for a dead letter.
  due_date      timestamptz,
  primary key (handler, slot, model_name, model_id)
) with (fillfactor = 50);
--> statement-breakpoint
create index blocked_models_due_idx on eventlog.blocked_models (handler, slot, due_date) where due_date is not null;
--> statement-breakpoint
-- Pages of what is blocked, of the dead letters, and of those of one handler: the oldest first.
create index blocked_models_date_idx on eventlog.blocked_models (blocked_date, handler, model_name, model_id);
--> statement-breakpoint
create index blocked_models_dead_idx on eventlog.blocked_models (blocked_date, handler, model_name, model_id) where dead;
--> statement-breakpoint
create index blocked_models_dead_of_handler_idx on eventlog.blocked_models (handler, blocked_date, model_name, model_id) where dead;
--> statement-breakpoint
-- Where an event, or a model, stands for all handlers.
create index blocked_models_event_idx on eventlog.blocked_models (event_id);
--> statement-breakpoint
create index blocked_models_model_idx on eventlog.blocked_models (model_id);
--> statement-breakpoint
-- Dead letters of a handler by the first line of their errors: groups are found without reading what is in them.
create index blocked_models_error_idx on eventlog.blocked_models
  (handler, "left"(split_part(coalesce(error, ''), E'\n', 1), 200), blocked_date, event_id) where dead;
