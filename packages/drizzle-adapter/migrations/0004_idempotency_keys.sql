-- The requests that were committed under a key, each written in the transaction of its effect.
create table eventlog.idempotency_keys (
  key           text        not null,
  principal     text        not null,
  namespace     text        not null,
  action_id     uuid        not null,
  action_name   text        not null,
  fingerprint   text        not null,
  result        jsonb,
  created_date  timestamptz not null default now(),
  expires_date  timestamptz not null,
  -- The event for which a handler executed the action, as one text: such a key is kept until the event cannot come again.
  source        text,
  primary key (key, principal, namespace)
);
--> statement-breakpoint
comment on table eventlog.idempotency_keys is
  'One row per request that was committed under an idempotency key; an expired one is taken over or deleted';
--> statement-breakpoint
-- Finds what has expired. Keys expire in the order in which they are written, so entries are added at one end.
create index idempotency_keys_expires_idx on eventlog.idempotency_keys (expires_date);
--> statement-breakpoint
-- Finds the keys of handlers, the oldest first. Keys are written in the order of their dates, so entries are added at one end.
create index idempotency_keys_source_idx on eventlog.idempotency_keys (created_date, key, principal, namespace)
  where source is not null;
--> statement-breakpoint
-- Undoes the statements before and after it in a plan of several, when the key of the plan is taken.
create function eventlog.raise_key_taken() returns integer
language plpgsql as $$
begin
  raise exception using errcode = 'FW002', message = 'the idempotency key is taken',
    hint = 'The framework answers with what was committed under it.';
end
$$;
