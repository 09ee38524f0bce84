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
-- Creating and dropping partitions is for the owner of the log alone; done by these functions, roles may do it that own nothing.
-- Whoever may do so is told: see the operations guide.
alter function eventlog.create_partitions(integer) security definer set search_path = pg_catalog, pg_temp;
--> statement-breakpoint
alter function eventlog.drop_partition(text) security definer set search_path = pg_catalog, pg_temp;
--> statement-breakpoint
revoke execute on function eventlog.create_partitions(integer), eventlog.drop_partition(text) from public;
