-- Only what fails by itself counts as an attempt.
-- Calls that did not count, because storage or another shard could not serve: they lengthen the wait before the next one.
alter table eventlog.parked_events add column uncounted integer not null default 0;
--> statement-breakpoint
-- The counted attempts of which nobody has said how they ended: whoever gave one up takes its count back, once.
alter table eventlog.parked_events add column open_attempts text[] not null default '{}';
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
