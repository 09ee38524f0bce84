import pg from 'pg';
import type { DepositEnvironment } from '../deposit-environment.js';

/** Opens as many connections as the framework has, for a hand-written contender. */
export function poolOf(environment: DepositEnvironment): pg.Pool {
  const pool = new pg.Pool({ connectionString: urlOf(environment), max: 20 });
  // A broken connection shows in the call that uses it.
  pool.on('error', () => undefined);
  return pool;
}

/** The database of an environment with one shard. */
export function urlOf({ urls }: DepositEnvironment): string {
  const [url, another] = urls;
  if (url === undefined || another !== undefined)
    throw new Error('A hand-written contender supports only one shard');
  return url;
}
