import pg from 'pg';
import type { DepositWorld } from '../deposit-world.js';

/** Opens as many connections as the framework has, for who writes by hand. */
export function poolOf(world: DepositWorld): pg.Pool {
  const pool = new pg.Pool({ connectionString: urlOf(world), max: 20 });
  // A broken connection shows in the call that uses it.
  pool.on('error', () => undefined);
  return pool;
}

/** The database of a world with one shard. */
export function urlOf({ urls }: DepositWorld): string {
  const [url, another] = urls;
  if (url === undefined || another !== undefined) throw new Error('What is written by hand knows one shard');
  return url;
}
