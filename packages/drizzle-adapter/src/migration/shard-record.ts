import { ShardIdentifier } from '@framework/core';
import type pg from 'pg';

import { inShortTransaction } from './in-database.js';

interface ShardRow {
  readonly shard_group: number;
  readonly shard_member: number;
}

/** A database's record of its shards; both lists are sorted. */
export interface ShardRecord {
  /** Shards that it holds. */
  readonly owned: readonly ShardIdentifier[];
  /** Shards that it once held and no longer holds. */
  readonly released: readonly ShardIdentifier[];
}

/** Reads a database's record of its shards; `undefined` if it has none yet. */
export async function readShards(client: pg.ClientBase): Promise<ShardRecord | undefined> {
  const { rows } = await client.query<ShardRow & { owned: boolean }>(
    `select shard_group, shard_member, released_date is null as owned from eventlog.shards
     order by shard_group, shard_member`,
  );
  if (rows.length === 0) return undefined;
  return {
    owned: rows.filter(({ owned }) => owned).map(shardOf),
    released: rows.filter(({ owned }) => !owned).map(shardOf),
  };
}

/**
 * Runs the work in a short transaction, with a lock that keeps others from changing which shards the database holds.
 */
export function lockingShards(client: pg.ClientBase, work: () => Promise<void>): Promise<void> {
  return inShortTransaction(client, async () => {
    await client.query(`select pg_advisory_xact_lock(hashtextextended('eventlog.shards', 0))`);
    await work();
  });
}

/**
 * Records that a database holds shards. Call it within {@link lockingShards}.
 *
 * @param onlyFirst whether to do so only if there is no record yet
 */
export async function recordAdopted(
  client: pg.ClientBase,
  shards: readonly ShardIdentifier[],
  { onlyFirst }: { readonly onlyFirst: boolean },
): Promise<void> {
  await client.query(
    `insert into eventlog.shards as s (shard_group, shard_member)
     select * from unnest($1::smallint[], $2::smallint[]) as given (shard_group, shard_member)
     where not $3 or not exists (select from eventlog.shards)
     on conflict (shard_group, shard_member) do update set adopted_date = clock_timestamp(), released_date = null
       where s.released_date is not null`,
    [...columnsOf(shards), onlyFirst],
  );
}

/**
 * Records that a database no longer holds shards, and returns those that it has a record of, including those released
 * before. Call it within {@link lockingShards}.
 */
export async function recordReleased(
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

/** Lists shards in words, such as `shard (0, 0) and shard (0, 1)`. */
export function namedShards(shards: readonly ShardIdentifier[]): string {
  return shards.length === 0 ? 'no shard' : shards.toSorted(ShardIdentifier.compare).join(' and ');
}

function shardOf({ shard_group: group, shard_member: member }: ShardRow): ShardIdentifier {
  return ShardIdentifier.of(group, member);
}

function columnsOf(shards: readonly ShardIdentifier[]): [number[], number[]] {
  return [shards.map(({ group }) => group), shards.map(({ member }) => member)];
}
