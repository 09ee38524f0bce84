-- The event for which a handler executed the action, as one text: such a key is kept until the event cannot come again.
alter table eventlog.idempotency_keys add column source text;
--> statement-breakpoint
-- Finds the keys of handlers, the oldest first. Keys are written in the order of their dates, so entries are added at one end.
create index idempotency_keys_source_idx on eventlog.idempotency_keys (created_date, key, principal, namespace)
  where source is not null;
--> statement-breakpoint
-- Keys of handlers were among those of clients. Which event they belong to is not known, so a year is given to whatever may
-- still be replayed.
update eventlog.idempotency_keys k
  set namespace = k.namespace || '#handlers', expires_date = k.expires_date + interval '1 year'
  from eventlog.handler_names n
  where left(k.key, length(n.name) + 1) = n.name || '/'
    and substr(k.key, length(n.name) + 2) ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/.';
