-- The event for which a handler executed the action, as one text: such a key is kept until the event cannot come again.
alter table eventlog.idempotency_keys add column source text;
--> statement-breakpoint
-- Finds the keys of handlers, the oldest first. Keys are written in the order of their dates, so entries are added at one end.
create index idempotency_keys_source_idx on eventlog.idempotency_keys (created_date, key, principal, namespace)
  where source is not null;
--> statement-breakpoint
-- Whether a key is one that the release before wrote for a handler; a client could write the like.
create function eventlog.is_handler_key(of_key text) returns boolean
language sql stable as $$
  select exists (
    select from eventlog.handler_names n
    where left(of_key, length(n.name) + 1) = n.name || '/'
      and substr(of_key, length(n.name) + 2) ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/.')
$$;
