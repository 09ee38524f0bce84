import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { sqlStateOf } from '../connection/server-error.js';

const endedWithinMs = 5_000;
const pollMs = 100;
/** SQLSTATE of what the role may not do. */
const permissionDenied = '42501';

interface Session {
  readonly pid: number;
  readonly usename: string;
  /** Null where the role may not see it. */
  readonly application: string | null;
}

/**
 * Ends the sessions of a database that are there now, and waits until they have ended.
 *
 * @param own how the names of the applications begin whose sessions are left alone
 * @returns the sessions that this role may not end, or that have not ended within 5 s, such as `wallet (wallet-service), process 4711`
 */
export async function endSessions(client: pg.ClientBase, own: string): Promise<readonly string[]> {
  const { rows } = await client.query<Session>(
    `select pid, usename, application_name as application from pg_stat_activity
     where datname = current_database() and usename is not null and coalesce(backend_type, 'client backend') = 'client backend'
       and not starts_with(coalesce(application_name, ''), $1)`,
    [own],
  );
  for (const { pid } of rows) await terminate(client, pid);
  const deadlineMs = performance.now() + endedWithinMs;
  let left = rows;
  for (;;) {
    const running = await runningOf(client, left);
    left = left.filter(({ pid }) => running.has(pid));
    if (left.length === 0 || performance.now() > deadlineMs) break;
    await delay(pollMs);
  }
  return left.map(
    ({ pid, usename, application }) => `${usename} (${application || 'unnamed'}), process ${pid}`,
  );
}

async function terminate(client: pg.ClientBase, pid: number): Promise<void> {
  try {
    await client.query('select pg_terminate_backend($1)', [pid]);
  } catch (error) {
    if (sqlStateOf(error) !== permissionDenied) throw error;
  }
}

async function runningOf(client: pg.ClientBase, sessions: readonly Session[]): Promise<ReadonlySet<number>> {
  const { rows } = await client.query<{ pid: number }>(
    'select pid from pg_stat_activity where pid = any($1)',
    [sessions.map(({ pid }) => pid)],
  );
  return new Set(rows.map(({ pid }) => pid));
}
