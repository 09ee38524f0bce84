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
--> statement-breakpoint
-- Keys of handlers were among those of clients. Which event they belong to is not known, so a year is given to whatever may
-- still be replayed.
update eventlog.idempotency_keys k
  set namespace = k.namespace || '#handlers', expires_date = k.expires_date + interval '1 year'
  where eventlog.is_handler_key(k.key);
--> statement-breakpoint
-- Processes of the release before may still be working for handlers, and say nothing of a source, by which they are told: what
-- they write goes where it is looked for now, and what was executed since is not executed by them.
alter table eventlog.idempotency_keys alter column source set default 'of the release before';
--> statement-breakpoint
create function eventlog.place_key_of_release_before() returns trigger
language plpgsql as $$
begin
  new.source := null;
  if eventlog.is_handler_key(new.key) then
    new.namespace := new.namespace || '#handlers';
    new.expires_date := new.expires_date + interval '1 year';
  end if;
  return new;
end
$$;
--> statement-breakpoint
create trigger key_of_release_before before insert on eventlog.idempotency_keys for each row
  when (new.source = 'of the release before') execute function eventlog.place_key_of_release_before();
