import type pg from 'pg';
import type { HistoryQuestion, ServerSession } from './server-session.js';

/**
 * Has values written as the adapter and Drizzle read them, whatever the role's or the database's settings are: what is
 * stored comes back as it is, and what is sent is taken as it is. The server tells a pooler of these, which keeps them for
 * its client.
 */
const reportedSettings = { TimeZone: 'UTC', DateStyle: 'ISO', standard_conforming_strings: 'on' };

/**
 * As {@link reportedSettings}, but a pooler knows nothing of them, or not every version does. And transactions see before
 * each statement what others have committed: a statement that has waited for a lock must not continue with what was there
 * before.
 */
const silentSettings = {
  IntervalStyle: 'postgres',
  extra_float_digits: '1',
  bytea_output: 'hex',
  array_nulls: 'on',
  default_transaction_isolation: 'read committed',
};

interface SessionRow {
  readonly pid: number;
  /** Null where the role may not see it. */
  readonly started: string | null;
  /** Null in recovery. */
  readonly timeline: string | null;
}

interface SettingRow {
  readonly name: string;
  /** What the session has when nobody has set it: the role's, the database's or the server's. */
  readonly value: string;
}

/** What was learnt about a new connection. */
export interface PreparedSession {
  /** The server's process; `undefined` when a pooler hides it. */
  readonly session: ServerSession | undefined;
  readonly isInRecovery: boolean;
  /** What operators should set because a pooler stands between, in words. */
  readonly obstacles: readonly string[];
}

/**
 * Sets what a session needs, and learns which process of the server it is.
 *
 * A pooler may give each transaction to another process, so what it does not keep track of is left alone there: it would
 * stay with a process that others use.
 *
 * @throws Error when a pooler stands between and a setting of the role would change values, or what transactions see
 */
export async function prepareSession(
  client: pg.ClientBase,
  history: HistoryQuestion,
  statementTimeoutMs: number,
): Promise<PreparedSession> {
  const { processID: announced } = client as pg.ClientBase & { readonly processID: number };
  const [row] = await history.ask<SessionRow>(client, (timeline) => ({
    text:
      `select pid, extract(epoch from backend_start)::text as started, ${timeline} as timeline, ` +
      `${Object.entries(reportedSettings).map(setting).join(', ')}, ` +
      `case when pid = $1 then array[${Object.entries(silentSettings).map(setting).join(', ')}] end ` +
      'from pg_stat_activity where pid = pg_backend_pid()',
    values: [announced],
  }));
  const isInRecovery = row?.timeline === null;
  if (row?.pid === announced) {
    const { pid, started, timeline } = row;
    const session = { pid, started: started ?? undefined, timeline: timeline ?? undefined };
    return { session, isInRecovery, obstacles: [] };
  }
  const obstacles = await poolerObstacles(client, statementTimeoutMs);
  return { session: undefined, isInRecovery, obstacles };
}

function setting([name, value]: readonly [string, string]): string {
  return `set_config('${name}', '${value}', false)`;
}

/** Judges what a session has by itself where nothing can be set for it. */
async function poolerObstacles(
  client: pg.ClientBase,
  statementTimeoutMs: number,
): Promise<readonly string[]> {
  const { rows } = await client.query<SettingRow>(
    'select name, reset_val as value from pg_settings where name = any($1)',
    [[...Object.keys(silentSettings), 'statement_timeout']],
  );
  const values = new Map(rows.map(({ name, value }) => [name, value]));
  const wrong = Object.entries(silentSettings).filter(
    ([name, value]) => !isFit(values.get(name), name, value),
  );
  if (wrong.length > 0) {
    const commands = wrong.map(([name, value]) => `alter role … set ${name} = '${value}'`).join('; ');
    throw new Error(
      `Values, or what transactions see, would differ behind this pooler, which cannot keep settings: ${commands}`,
    );
  }
  const timeoutMs = Number(values.get('statement_timeout') ?? 0);
  if (timeoutMs > 0 && timeoutMs <= statementTimeoutMs) return [];
  return [
    'behind this pooler the server does not end statements that take too long: ' +
      `alter role … set statement_timeout = ${statementTimeoutMs}`,
  ];
}

function isFit(value: string | undefined, name: string, wanted: string): boolean {
  if (value === undefined || value === wanted) return true;
  // More digits than the shortest exact ones are exact as well.
  return name === 'extra_float_digits' && Number(value) > 0;
}
