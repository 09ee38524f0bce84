-- Moves the keys of handlers from among those of clients, in steps: each looks at the next keys, and is a transaction of its own,
-- so that nobody waits for more than these. Without a row there is nothing to move, as after an earlier text of these migrations.
create table if not exists eventlog.key_move (
  key       text not null,
  principal text not null,
  namespace text not null
);
--> statement-breakpoint
-- Shorter than the time after which the server takes a wait for a deadlock.
set local lock_timeout = '100ms';
--> statement-breakpoint
-- Which event a key belongs to is not known, so a year is given to whatever may still be replayed. The pattern is looked at
-- first: it passes most keys of clients over without a look at the names. A key that stands in both places was executed twice;
-- the one that is there already is the later one, and is kept for longer.
with page as materialized (
  select k.key, k.principal, k.namespace from eventlog.idempotency_keys k
  where (k.key, k.principal, k.namespace) > (
    (select m.key from eventlog.key_move m), (select m.principal from eventlog.key_move m),
    (select m.namespace from eventlog.key_move m))
  order by k.key, k.principal, k.namespace limit 1000
), noted as (
  update eventlog.key_move m set key = p.key, principal = p.principal, namespace = p.namespace
  from (select * from page order by key desc, principal desc, namespace desc limit 1) p
), taken as (
  delete from eventlog.idempotency_keys k using page p
  where (k.key, k.principal, k.namespace) = (p.key, p.principal, p.namespace)
    and p.key ~ '/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/.' and p.namespace not like '%#handlers'
    and k.source is null and eventlog.is_handler_key(p.key)
  returning k.*
), moved as (
  insert into eventlog.idempotency_keys
    (key, principal, namespace, action_id, action_name, fingerprint, result, created_date, expires_date, source)
  select t.key, t.principal, t.namespace || '#handlers', t.action_id, t.action_name, t.fingerprint, t.result, t.created_date,
    t.expires_date + interval '1 year', null
  from taken t
  on conflict (key, principal, namespace) do nothing
)
select exists (select from page) as unfinished;
--> statement-breakpoint
drop table eventlog.key_move;
