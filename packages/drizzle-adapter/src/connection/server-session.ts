import pg from 'pg';

/** SQLSTATEs of a server that hides its timeline: no such function, not allowed, not supported. */
const hiddenStates = new Set(['42883', '42501', '0A000']);

/** The server process behind a connection. Another connection can check whether it is still running. */
export interface ServerSession {
  readonly pid: number;
  /**
   * When it started, in seconds since 1970 with all digits, because a later process may get the same pid. `undefined`
   * when the role may not see it, for example after `set role`.
   */
  readonly started: string | undefined;
  /**
   * Identifies the server, its timeline and the database: a standby that is promoted starts a new timeline, and another
   * database may get the name of this one. For a server that hides its timeline, its start time and the database.
   * `undefined` when the server was in recovery.
   */
  readonly timeline: string | undefined;
}

/** SQL for what identifies a server, with the database; null in recovery, where functions in it would fail and are not called. */
const onDatabase = (server: string): string =>
  `(case when not pg_is_in_recovery() then ${server} || '/' || ` +
  "(select oid || '/' || xmin from pg_database where datname = current_database()) end)";

const timelineSql: string = onDatabase(
  "(select system_identifier from pg_control_system())::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)",
);

/** Used when the timeline is hidden: a promoted server was started at another time. */
const startInstead: string = onDatabase("'started ' || extract(epoch from pg_postmaster_start_time())::text");

/** Asks a server for its timeline, in the form that the server allows. */
export class HistoryQuestion {
  #timeline = timelineSql;

  /**
   * Runs a query that contains the expression for the timeline, and repeats it with the start time if the server hides
   * the timeline.
   *
   * Must not run within a transaction: the failed first try would abort it.
   */
  async ask<R extends pg.QueryResultRow>(
    client: pg.ClientBase,
    queryWith: (timeline: string) => pg.QueryConfig,
  ): Promise<readonly R[]> {
    const asked = this.#timeline;
    try {
      return (await client.query<R>(queryWith(asked))).rows;
    } catch (error) {
      // Another connection may have found this out in the meantime.
      if (!isHidden(error) || asked === startInstead) throw error;
      this.#timeline = startInstead;
      return (await client.query<R>(queryWith(this.#timeline))).rows;
    }
  }
}

/**
 * Identifies the database's current history, which ends with each crash, restart, failover and restore. The session is bound to
 * the history: if the database is restored in place, the log refuses what the session writes.
 *
 * Empty when `eventlog.server_run` has no row because the server accepts no writes: each query would return another history.
 *
 * @see ../../migrations/0002_history.sql
 */
export async function databaseHistory(client: pg.ClientBase): Promise<string> {
  const text =
    'select eventlog.server_history() as history, ' +
    "set_config('framework.run', pg_relation_filenode('eventlog.server_run')::text, false) from eventlog.server_run";
  const { rows } = await client.query<{ history: string }>(text);
  return rows[0]?.history ?? '';
}

function isHidden(error: unknown): boolean {
  return error instanceof pg.DatabaseError && hiddenStates.has(error.code ?? '');
}

/**
 * Settings that fix the format of values, whatever the role or database has set: what is stored is read back unchanged.
 * The server reports changes of these settings, so a pooler can keep them for its client.
 */
const reportedSettings = { TimeZone: 'UTC', DateStyle: 'ISO', standard_conforming_strings: 'on' };

/**
 * Like {@link reportedSettings}, but unknown to poolers, or to some versions of them. The isolation level belongs here,
 * too: each statement must see what others have committed before it, so that a statement that waited for a lock does
 * not continue with old data.
 */
const silentSettings = {
  IntervalStyle: 'postgres',
  extra_float_digits: '1',
  bytea_output: 'hex',
  array_nulls: 'on',
  default_transaction_isolation: 'read committed',
  // The server says by a warning that a commit no longer waits for the synchronous standbys.
  client_min_messages: 'warning',
};

/** Levels at which a session gets no warnings. */
const withoutWarnings = new Set(['error', 'fatal', 'panic']);

interface SessionRow {
  readonly pid: number;
  /** Null when the role may not see it. */
  readonly started: string | null;
  /** Null while the server is in recovery. */
  readonly timeline: string | null;
}

interface SettingRow {
  readonly name: string;
  /** The value that applies if the session sets nothing: that of the role, the database or the server. */
  readonly value: string;
}

/** What was found when a new connection was prepared. */
export interface PreparedSession {
  /** The server process; `undefined` when a pooler hides it. */
  readonly session: ServerSession | undefined;
  readonly isInRecovery: boolean;
  /** What operators should set because there is a pooler in between, in words. */
  readonly obstacles: readonly string[];
}

/**
 * Applies the settings that a session needs, and finds out which server process it uses.
 *
 * A pooler may run each transaction in another server process. Settings that the pooler does not track would stay in a
 * process that other clients use, so they are left alone there.
 *
 * @throws Error when there is a pooler and a setting of the role would change values or what transactions see
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

/** Checks the session's own settings when they cannot be changed. */
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
      `This pooler does not keep session settings, and the role's own would change values or isolation. Run: ${commands}`,
    );
  }
  const timeoutMs = Number(values.get('statement_timeout') ?? 0);
  if (timeoutMs > 0 && timeoutMs <= statementTimeoutMs) return [];
  return [
    'behind this pooler, the server does not cancel slow statements; run: ' +
      `alter role … set statement_timeout = ${statementTimeoutMs}`,
  ];
}

function isFit(value: string | undefined, name: string, wanted: string): boolean {
  if (value === undefined || value === wanted) return true;
  if (name === 'client_min_messages') return !withoutWarnings.has(value);
  // More digits than the shortest exact representation are exact, too.
  return name === 'extra_float_digits' && Number(value) > 0;
}
