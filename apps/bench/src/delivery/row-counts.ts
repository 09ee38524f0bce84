import { query } from '../database/bench-server.js';

/**
 * How many row versions have been written in the framework's tables of a database, except for leases, which a process takes when
 * it starts and gives back when it stops.
 */
export async function rowVersions(url: string): Promise<number> {
  const [row] = await query<{ count: number }>(
    url,
    `select sum(n_tup_ins + n_tup_upd)::float8 as count from pg_stat_user_tables
     where schemaname = 'eventlog' and relname <> 'leases'`,
  );
  return row?.count ?? 0;
}

/** How many dead rows PostgreSQL now counts in the framework's tables. */
export async function deadRows(url: string): Promise<number> {
  const [row] = await query<{ count: number }>(
    url,
    `select sum(n_dead_tup)::float8 as count from pg_stat_user_tables where schemaname = 'eventlog'`,
  );
  return row?.count ?? 0;
}

/** How many row versions have been written for blocked models. */
export async function blockedRowVersions(url: string): Promise<number> {
  const [row] = await query<{ count: number }>(
    url,
    `select (n_tup_ins + n_tup_upd + n_tup_del)::float8 as count from pg_stat_user_tables where relname = 'blocked_models'`,
  );
  return row?.count ?? 0;
}
