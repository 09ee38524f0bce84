import pg from 'pg';

/** SQLSTATEs of a server that hides its history: no such function, not allowed, not supported. */
const hiddenStates = new Set(['42883', '42501', '0A000']);

/** The server's process behind a connection, by which another connection can see whether it still works. */
export interface ServerSession {
  readonly pid: number;
  /**
   * When it started, in seconds since 1970 with all digits: another process may get the same pid later. `undefined` where
   * the role may not see it, as one that was set instead of the login's.
   */
  readonly started: string | undefined;
  /**
   * Which server it is and since which branching of its history: a standby that takes over begins another timeline. Of a
   * server that hides them, when it was started. `undefined` when it was in recovery.
   */
  readonly timeline: string | undefined;
}

/** The timeline as SQL, null in recovery; its function fails there, and is not called. */
const timelineSql =
  '(case when not pg_is_in_recovery() then (select system_identifier from pg_control_system())::text ' +
  "|| '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) end)";

/** What stands for it where it is hidden: a server that takes over was started at another time. */
const startInstead =
  "(case when not pg_is_in_recovery() then 'started ' || extract(epoch from pg_postmaster_start_time())::text end)";

/** Asks a server about its history, in the way in which it answers. */
export class HistoryQuestion {
  #timeline = timelineSql;

  /**
   * Sends a query that is made with the expression for the timeline; again with another one when the server hides that.
   *
   * Not within a transaction, which the first try would spoil.
   */
  async ask<R extends pg.QueryResultRow>(
    client: pg.ClientBase,
    queryWith: (timeline: string) => pg.QueryConfig,
  ): Promise<readonly R[]> {
    const asked = this.#timeline;
    try {
      return (await client.query<R>(queryWith(asked))).rows;
    } catch (error) {
      // Another connection may have learnt it meanwhile.
      if (!isHidden(error) || asked === startInstead) throw error;
      this.#timeline = startInstead;
      return (await client.query<R>(queryWith(this.#timeline))).rows;
    }
  }
}

/**
 * Since which recovery the server has run on what the framework's database holds, by a row that PostgreSQL drops with every one:
 * also of a standby that takes over on the timeline that another one has begun, of which it has not heard.
 *
 * Empty where the row is not there, because the server takes no writes.
 */
export async function databaseRun(client: pg.ClientBase): Promise<string> {
  const { rows } = await client.query<{ id: string }>('select id from eventlog.server_run');
  return rows[0]?.id ?? '';
}

function isHidden(error: unknown): boolean {
  return error instanceof pg.DatabaseError && hiddenStates.has(error.code ?? '');
}

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
