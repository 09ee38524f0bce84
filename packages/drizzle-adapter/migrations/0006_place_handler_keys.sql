-- Processes of the release before may still be working for handlers, and say nothing of a source, by which they are told: what
-- they write goes where it is looked for from now on, and what was executed since is not executed by them.
alter table eventlog.idempotency_keys alter column source set default 'of the release before';
--> statement-breakpoint
-- The keys of handlers that are there already stand among those of clients, and are moved later. This is the last key that was
-- looked at; the table is there until all of them are moved.
create table eventlog.key_move (
  key       text not null,
  principal text not null,
  namespace text not null
);
--> statement-breakpoint
insert into eventlog.key_move values ('', '', '');
--> statement-breakpoint
-- A key that was not moved yet stands where that process puts it, and is found there. The lock keeps it in place until the
-- transaction ends; when it is just being moved, this waits, and it is found among those of handlers.
create or replace function eventlog.place_key_of_release_before() returns trigger
language plpgsql as $$
begin
  new.source := null;
  if not eventlog.is_handler_key(new.key) then return new; end if;
  if to_regclass('eventlog.key_move') is not null then
    perform from eventlog.idempotency_keys k
      where (k.key, k.principal, k.namespace) = (new.key, new.principal, new.namespace) for key share;
    if found then return new; end if;
  end if;
  new.namespace := new.namespace || '#handlers';
  new.expires_date := new.expires_date + interval '1 year';
  return new;
end
$$;
--> statement-breakpoint
drop trigger if exists key_of_release_before on eventlog.idempotency_keys;
--> statement-breakpoint
create trigger key_of_release_before before insert on eventlog.idempotency_keys for each row
  when (new.source = 'of the release before') execute function eventlog.place_key_of_release_before();
