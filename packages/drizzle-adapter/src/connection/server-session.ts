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
const timeline =
  '(case when not pg_is_in_recovery() then (select system_identifier from pg_control_system())::text ' +
  "|| '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) end)";

/** What stands for it where it is hidden: a server that takes over was started at another time. */
const startInstead =
  "(case when not pg_is_in_recovery() then 'started ' || extract(epoch from pg_postmaster_start_time())::text end)";

/** Asks a server about its history, in the way in which it answers. */
export class HistoryQuestion {
  #timeline = timeline;

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
