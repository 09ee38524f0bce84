-- Which shards the database holds, and held once: a process that takes it for the database of another shard is refused.
create table eventlog.shards (
  shard_group   smallint    not null,
  shard_member  smallint    not null,
  adopted_date  timestamptz not null default clock_timestamp(),
  -- From when on another database holds the shard; null while this one does.
  released_date timestamptz,
  primary key (shard_group, shard_member)
);
--> statement-breakpoint
comment on table eventlog.shards is
  'The shards that this database holds; written when it is opened first, then changed by operators only';
--> statement-breakpoint
-- What operators change: one row before the change and one after it, so that a change that was cut short is seen. Never updated.
create table eventlog.operator_audit (
  change_id     uuid        not null,
  phase         text        not null check (phase in ('begun', 'ended')),
  recorded_date timestamptz not null default clock_timestamp(),
  operation     text,
  actor         text,
  reason        text,
  target        jsonb,
  outcome       text        check (outcome in ('done', 'failed')),
  count         bigint,
  error_code    text,
  primary key (change_id, phase),
  check (case phase when 'begun' then num_nulls(operation, actor, reason, target) = 0
                    else num_nulls(outcome, count) = 0 end)
);
--> statement-breakpoint
comment on table eventlog.operator_audit is 'What operators changed, who and why: a row when a change begins and one when it ends';
--> statement-breakpoint
create index operator_audit_date_idx on eventlog.operator_audit (recorded_date, change_id) where phase = 'begun';
