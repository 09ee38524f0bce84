import { ShardIdentifier } from '@framework/core';
import type pg from 'pg';
import { inShortTransaction } from './in-database.js';

interface ShardRow {
  readonly shard_group: number;
  readonly shard_member: number;
}

/** What a database notes of shards, each list in order. */
export interface ShardNotes {
  readonly held: readonly ShardIdentifier[];
  /** Those that it held once, and does not hold any more. */
  readonly released: readonly ShardIdentifier[];
}

/** What a database notes of shards; `undefined` when it has not been told of any yet. */
export async function shardNotes(client: pg.ClientBase): Promise<ShardNotes | undefined> {
  const { rows } = await client.query<ShardRow & { held: boolean }>(
    `select shard_group, shard_member, released_date is null as held from eventlog.shards
     order by shard_group, shard_member`,
  );
  if (rows.length === 0) return undefined;
  return {
    held: rows.filter(({ held }) => held).map(shardOf),
    released: rows.filter(({ held }) => !held).map(shardOf),
  };
}

/** Runs the work in a short transaction, in which nobody else changes which shards the database holds. */
export function changingShards(client: pg.ClientBase, work: () => Promise<void>): Promise<void> {
  return inShortTransaction(client, async () => {
    await client.query(`select pg_advisory_xact_lock(hashtextextended('eventlog.shards', 0))`);
    await work();
  });
}

/**
 * Notes that a database holds shards; to be called while nobody else changes them, see {@link changingShards}.
 *
 * @param onlyFirst only when it has not been told of any yet; where it has a log already, it has always held them
 */
export async function adopt(
  client: pg.ClientBase,
  shards: readonly ShardIdentifier[],
  { onlyFirst }: { readonly onlyFirst: boolean },
): Promise<void> {
  await client.query(
    `insert into eventlog.shards as s (shard_group, shard_member, adopted_date)
     select shard_group, shard_member,
       case when $3 and exists (select from eventlog.events) then '-infinity' else clock_timestamp() end
     from unnest($1::smallint[], $2::smallint[]) as given (shard_group, shard_member)
     where not $3 or not exists (select from eventlog.shards)
     on conflict (shard_group, shard_member) do update set adopted_date = clock_timestamp(), released_date = null
       where s.released_date is not null`,
    [...columnsOf(shards), onlyFirst],
  );
}

/**
 * Notes that a database does not hold shards any more, and gives those that it has a note of, also when it released them before;
 * to be called while nobody else changes them.
 */
export async function release(
  client: pg.ClientBase,
  shards: readonly ShardIdentifier[],
): Promise<readonly ShardIdentifier[]> {
  const { rows } = await client.query<ShardRow>(
    `update eventlog.shards s set released_date = coalesce(s.released_date, clock_timestamp())
     from unnest($1::smallint[], $2::smallint[]) as given (shard_group, shard_member)
     where (s.shard_group, s.shard_member) = (given.shard_group, given.shard_member)
     returning s.shard_group, s.shard_member`,
    columnsOf(shards),
  );
  return rows.map(shardOf);
}

/** Such as `shard (0, 0) and shard (0, 1)`. */
export function namedShards(shards: readonly ShardIdentifier[]): string {
  return shards.length === 0 ? 'no shard' : shards.toSorted(ShardIdentifier.compare).join(' and ');
}

function shardOf({ shard_group: group, shard_member: member }: ShardRow): ShardIdentifier {
  return ShardIdentifier.of(group, member);
}

function columnsOf(shards: readonly ShardIdentifier[]): [number[], number[]] {
  return [shards.map(({ group }) => group), shards.map(({ member }) => member)];
}
