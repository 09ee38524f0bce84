import type { DatabaseConfig } from '@framework/core/adapter';
import { HistoryQuestion, prepareSession } from '@framework/drizzle-adapter/operation';
import pg from 'pg';

import { onConnection } from '../connect.js';
import { type LogFacts, type LogOptions, logOf } from './log-facts.js';

/** The settings of a server that are looked at, as the role gets them if it sets nothing itself. */
const settingNames = [
  'TimeZone',
  'fsync',
  'full_page_writes',
  'hot_standby_feedback',
  'idle_in_transaction_session_timeout',
  'max_connections',
  'max_replication_slots',
  'max_wal_senders',
  'statement_timeout',
  'superuser_reserved_connections',
  'synchronous_commit',
  'synchronous_standby_names',
  'wal_level',
] as const;
type SettingName = (typeof settingNames)[number];

/** What was seen in one database. */
export interface DatabaseFacts extends ServerFacts, SessionFacts {
  readonly settings: Readonly<Partial<Record<SettingName, string>>>;
  /** How much later it is on the server than here, and how far that may be wrong, in milliseconds. */
  readonly clock: { readonly aheadMs: number; readonly uncertainMs: number };
  /** The schema; `undefined` for a standby and while the framework's tables are missing. */
  readonly log: LogFacts | undefined;
  /** Transactions that are open for long, in words. */
  readonly longTransactions: readonly string[];
  readonly slots: readonly SlotFacts[];
}

/** What is true for the server, the database and the role. */
interface ServerFacts {
  readonly version: number;
  readonly versionText: string;
  readonly isInRecovery: boolean;
  readonly isReadOnly: boolean;
  readonly encoding: string;
  readonly role: string;
  readonly isSuperuser: boolean;
  readonly mayReplicate: boolean;
  readonly seesAllSessions: boolean;
  /** How many connections the role and the database may have; -1 means any number. */
  readonly roleConnectionsMax: number;
  readonly databaseConnectionsMax: number;
  /** The version of the collation that indexes were built with, and the one that is installed; null if it has none. */
  readonly collationVersion: string | null;
  readonly installedCollationVersion: string | null;
  /** Identifies the running server, and its database; `undefined` when the server hides that. */
  readonly server: string | undefined;
  readonly database: string | undefined;
}

/** What is true for the connection. */
interface SessionFacts {
  readonly isPooled: boolean;
  /** Whether a pooler refuses transactions. */
  readonly refusesTransactions: boolean;
  /** Why the settings of the role do not fit behind a pooler; the first is refused by the service. */
  readonly refusal: string | undefined;
  readonly obstacles: readonly string[];
}

/** A replication slot that nobody uses. */
interface SlotFacts {
  readonly name: string;
  readonly retainedBytes: number;
}

/** What decides about the look at a database. */
export interface InspectOptions extends LogOptions {
  readonly timeoutMs: number;
  /** The age at which a transaction is long. */
  readonly longTransactionMs: number;
}

/** @throws errors of `pg` and system errors when it cannot be reached or refuses a question */
export function inspect(config: DatabaseConfig, options: InspectOptions): Promise<DatabaseFacts> {
  return onConnection(config, options.timeoutMs, async (client) => {
    const clock = await clockOf(client);
    const server = { ...(await serverOf(client)), ...(await identityOf(client)) };
    const settings = await settingsOf(client);
    const session = await sessionOf(client, config);
    const { rows: slots } = await client.query<SlotFacts>(slotsText);
    const { rows: transactions } = await client.query<{ text: string }>(transactionsText, [
      options.longTransactionMs,
    ]);
    return {
      ...server,
      ...session,
      settings,
      clock,
      log: server.isInRecovery ? undefined : await logOf(client, options),
      longTransactions: transactions.map(({ text }) => text),
      slots,
    };
  });
}

/** The server's clock at the middle of a round trip, the shortest of three. */
async function clockOf(client: pg.Client): Promise<DatabaseFacts['clock']> {
  let best = { aheadMs: 0, uncertainMs: Infinity };
  for (let trip = 0; trip < 3; trip++) {
    const startedMs = performance.now();
    const { rows } = await client.query<{ now: number }>(
      'select (extract(epoch from clock_timestamp()) * 1000)::double precision as now',
    );
    const uncertainMs = (performance.now() - startedMs) / 2;
    const aheadMs = (rows[0]?.now ?? 0) - (Date.now() - uncertainMs);
    if (uncertainMs < best.uncertainMs) best = { aheadMs, uncertainMs };
  }
  return best;
}

type ServerRow = Omit<ServerFacts, 'server' | 'database'>;

const serverText = `
  select current_setting('server_version_num')::integer as version, current_setting('server_version') as "versionText",
    pg_is_in_recovery() as "isInRecovery", current_setting('transaction_read_only')::boolean as "isReadOnly",
    current_setting('server_encoding') as encoding, current_user::text as role,
    r.rolsuper as "isSuperuser", r.rolreplication or r.rolsuper as "mayReplicate",
    pg_has_role(current_user, 'pg_read_all_stats', 'usage') as "seesAllSessions",
    r.rolconnlimit as "roleConnectionsMax", d.datconnlimit as "databaseConnectionsMax",
    to_jsonb(d) ->> 'datcollversion' as "collationVersion", null as "installedCollationVersion"
  from pg_roles r, pg_database d where r.rolname = current_user and d.datname = current_database()`;

const collationsSince = 150_000;

async function serverOf(client: pg.Client): Promise<ServerRow> {
  const { rows } = await client.query<ServerRow>(serverText);
  const [row] = rows;
  if (row === undefined) throw new Error('the server does not know its own database');
  if (row.version < collationsSince) return row;
  const { rows: installed } = await client.query<{ version: string | null }>(
    'select pg_database_collation_actual_version(oid) as version from pg_database where datname = current_database()',
  );
  return { ...row, installedCollationVersion: installed[0]?.version ?? null };
}

async function identityOf(client: pg.Client): Promise<Pick<ServerFacts, 'server' | 'database'>> {
  try {
    const { rows } = await client.query<{ server: string; oid: string }>(
      `select (select system_identifier from pg_control_system()) || ' ' || extract(epoch from pg_postmaster_start_time())
         as server, oid::text from pg_database where datname = current_database()`,
    );
    const { server, oid } = rows[0] ?? {};
    return { server, database: `${server} ${oid}` };
  } catch (error) {
    // Some managed servers hide this.
    if (error instanceof pg.DatabaseError) return { server: undefined, database: undefined };
    throw error;
  }
}

async function settingsOf(client: pg.Client): Promise<DatabaseFacts['settings']> {
  const { rows } = await client.query<{ name: string; value: string }>(
    'select name, reset_val as value from pg_settings where name = any($1)',
    [settingNames],
  );
  return Object.fromEntries(rows.map(({ name, value }) => [name, value]));
}

/** @param config whose statement timeout a pooler does not pass on */
async function sessionOf(client: pg.Client, config: DatabaseConfig): Promise<SessionFacts> {
  const refusesTransactions = !(await takesTransactions(client));
  try {
    const prepared = await prepareSession(client, new HistoryQuestion(), config.statementTimeoutMs);
    const { session, obstacles } = prepared;
    return { isPooled: session === undefined, refusesTransactions, refusal: undefined, obstacles };
  } catch (error) {
    if (!(error instanceof Error) || error instanceof pg.DatabaseError) throw error;
    return { isPooled: true, refusesTransactions, refusal: error.message, obstacles: [] };
  }
}

/** PgBouncer in statement mode refuses a transaction as a violation of the protocol. */
async function takesTransactions(client: pg.Client): Promise<boolean> {
  try {
    await client.query('begin');
    await client.query('rollback');
    return true;
  } catch (error) {
    if (error instanceof pg.DatabaseError && /statement pooling/.test(error.message)) return false;
    throw error;
  }
}

const slotsText = `
  select slot_name::text as name, case when pg_is_in_recovery() then 0
      else coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0) end::double precision as "retainedBytes"
  from pg_replication_slots where not active and (database is null or database = current_database()) order by 1`;

const transactionsText = `
  select format('pid %s of %s (%s), %s, since %s s', pid, usename, application_name, state,
    round(extract(epoch from clock_timestamp() - xact_start))) as text
  from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
    and xact_start < clock_timestamp() - $1 * interval '1 millisecond'
  union all
  select format('prepared transaction %s of %s, since %s s', gid, owner,
    round(extract(epoch from clock_timestamp() - prepared)))
  from pg_prepared_xacts where database = current_database()
    and prepared < clock_timestamp() - $1 * interval '1 millisecond'`;
