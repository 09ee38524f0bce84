import { type DatabaseConfig, DatabaseNotReadyError } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

import type { ConnectionGuard } from '../connection/client.js';
import { refuseInRecovery } from '../connection/server-role.js';
import { messageOf, sqlStateOf } from '../connection/storage-error.js';
import { partitionCallsMax, partitionMonthsAhead } from '../delivery/pg-delivery-store.js';
import { endTimeouts, inDatabase, inShortTransaction, readingCommitted } from './in-database.js';
import { MigrationFolder } from './migration-folder.js';
import {
  missingMigrations,
  newerSchema,
  olderSchema,
  refuseOtherEncoding,
  refuseOtherSchema,
  refuseUnmigrated,
  unknownMigrations,
} from './schema-check.js';

/**
 * How long a process waits for another one that migrates the same database, and for tables that are in use, in
 * milliseconds.
 */
const patienceMs = 300_000;
/** How long a migration waits for a table at a time. Later statements queue behind it meanwhile. */
const tableLockTimeoutMs = 3_000;
const tableRetryMs = 1_000;
/** SQLSTATE of a lock that was not available in time. */
const lockNotAvailable = '55P03';
/** SQLSTATE of a missing permission. */
const permissionDenied = '42501';
/** The advisory lock of migrations: any number that is the same in every process. */
const migrationLock = 7_265_814_402;

/**
 * A migration gave up because a table that it needs stayed in use. Other statements queued behind it while it waited.
 */
export class TablesInUseError extends Error {
  override readonly name = 'TablesInUseError';

  constructor(cause: unknown) {
    super('A table that a migration needs is in use', { cause });
  }
}

/** The settings for opening a database. */
export interface Opening {
  /** The application's migrations, as `drizzle-kit generate` writes them. */
  readonly migrationsFolder: string | undefined;
  /** Check the server and the database before anything else is read or written. */
  readonly guards: readonly ConnectionGuard[];
  readonly migrateCommand: string;
  /** Receives conditions that operators should know about. */
  readonly warn: (kind: 'newer-schema' | 'log-partitions', message: string) => void;
  /** Receives an identifier of the running server and its database; `undefined` when the server hides that. */
  readonly onIdentity?: (identity: string | undefined) => void;
  /** Aborts the attempt, whatever it waits for; uncommitted migrations are not applied. */
  readonly signal?: AbortSignal;
}

/**
 * Applies the framework's migrations and then the application's, each once, under the database's lock.
 *
 * Any number of processes may call it at once: one does the work, and the others wait and find nothing left to do. The
 * lock belongs to each migration's transaction, so it also works behind a pooler, which may run each transaction in
 * another session.
 *
 * @returns the applied migrations, in order
 * @throws errors of `pg` and of Drizzle's migration reader, or errors that have them as their cause
 */
export async function migrateDatabase(config: DatabaseConfig, opening: Opening): Promise<readonly string[]> {
  return inDatabase(config, opening.signal, async (client) => {
    await refuseInRecovery(client);
    await refuseOtherEncoding(client);
    opening.onIdentity?.(await identityOf(client));
    const folders = MigrationFolder.all(opening.migrationsFolder);
    const [framework, ...others] = folders;
    // A database of another shard must not be migrated.
    await ask(client, opening);
    const applied: string[] = [];
    if (framework !== undefined) applied.push(...(await apply(client, framework, opening)));
    await refuseUnmigrated(client, opening.migrateCommand);
    await ask(client, opening);
    await createPartitions(client, opening.warn);
    for (const folder of others) applied.push(...(await apply(client, folder, opening)));
    const unknown = await inShortTransaction(client, () => unknownMigrations(client, folders));
    if (unknown.length > 0) opening.warn('newer-schema', newerSchema(unknown));
    return applied;
  });
}

/**
 * Checks a database that is migrated separately.
 *
 * @param checks whether to refuse a schema that is older or newer than the code; otherwise only missing tables or
 * primary keys of the framework are refused
 * @throws DatabaseNotReadyError `not-migrated` or `schema-newer`
 * @throws errors of `pg`
 */
export function lookAtDatabase(config: DatabaseConfig, checks: boolean, opening: Opening): Promise<void> {
  return inDatabase(config, opening.signal, async (client) => {
    await refuseInRecovery(client);
    await refuseOtherEncoding(client);
    opening.onIdentity?.(await identityOf(client));
    if (checks) {
      const folders = MigrationFolder.all(opening.migrationsFolder);
      await inShortTransaction(client, () => refuseOtherSchema(client, folders, opening.migrateCommand));
    }
    await refuseUnmigrated(client, opening.migrateCommand);
    await ask(client, opening);
    if (checks) await createPartitions(client, opening.warn);
  });
}

async function ask(client: pg.Client, { guards }: Opening): Promise<void> {
  for (const guard of guards) await guard.ensure(client);
}

/**
 * Creates the partitions of the next months, and reports it if that of this month or the next one is missing afterwards. Delivery
 * creates partitions as well, and the default partition contains the events that are written before.
 */
async function createPartitions(client: pg.Client, warn: Opening['warn']): Promise<void> {
  const refusal = await refusedPartitions(client);
  const missing = await missingPartitions(client);
  if (missing.length === 0) return;
  const reason =
    refusal ?? 'eventlog.events_default contains its events, or is too large to be searched for them';
  warn(
    'log-partitions',
    `the log lacks the partition of this month or the next one (${missing.join(', ')}): ${reason}`,
  );
}

/** Why partitions could not be created now; `undefined` when no call was refused. */
async function refusedPartitions(client: pg.Client): Promise<string | undefined> {
  const create = async (): Promise<boolean> => {
    const text = 'select eventlog.create_partitions($1) as more';
    const { rows } = await client.query<{ more: boolean }>(text, [partitionMonthsAhead]);
    return rows[0]?.more === true;
  };
  try {
    for (let call = 1, more = true; more && call <= partitionCallsMax; call++)
      more = await readingCommitted(client, create);
    return undefined;
  } catch (error) {
    const state = sqlStateOf(error);
    if (state === permissionDenied) return `the role may not create it (${messageOf(error)})`;
    if (state === lockNotAvailable) return 'the log is being read; delivery tries again';
    throw error;
  }
}

async function missingPartitions(client: pg.Client): Promise<readonly string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select 'events_' || to_char(month, 'YYYY_MM') as name
     from (values (now() at time zone 'UTC'), (date_trunc('month', now() at time zone 'UTC') + interval '1 month')) as needed (month)
     where to_regclass('eventlog.events_' || to_char(month, 'YYYY_MM')) is null`,
  );
  return rows.map(({ name }) => name);
}

/**
 * Runs the work in a transaction that holds the database's lock, and repeats it while a table that it needs is in use.
 *
 * @throws TablesInUseError when a table is still in use after {@link patienceMs}
 */
async function migrateUnderLock<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
  const deadlineMs = performance.now() + patienceMs;
  for (;;) {
    try {
      return await inTransaction(client, work);
    } catch (error) {
      if (!(error instanceof TablesInUseError) || performance.now() > deadlineMs) throw error;
    }
  }
}

function inTransaction<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
  return readingCommitted(client, async () => {
    // Waiting for another process and applying a large migration may both take a long time.
    await endTimeouts(client, 'transaction');
    await client.query(`set local lock_timeout = ${patienceMs}`);
    await client.query('select pg_advisory_xact_lock($1)', [migrationLock]);
    return withLockTimeoutRetry(client, work);
  });
}

/**
 * Runs the work. If a table that it needs is in use, releases all tables so that the statements queued behind it can
 * run. Keeps the database's lock meanwhile, so that no other migrating process requests the tables.
 */
async function withLockTimeoutRetry<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
  await client.query(`set local lock_timeout = ${tableLockTimeoutMs}; savepoint work`);
  try {
    return await work();
  } catch (error) {
    if (sqlStateOf(error) !== lockNotAvailable) throw error;
    await client.query('rollback to savepoint work');
    await delay(tableRetryMs);
    throw new TablesInUseError(error);
  }
}

/**
 * Applies the migrations that the journal lacks, each in its own transaction, so that none holds the tables of the
 * previous one.
 */
async function apply(
  client: pg.Client,
  folder: MigrationFolder,
  { migrateCommand }: Opening,
): Promise<readonly string[]> {
  const applied: string[] = [];
  for (;;) {
    // Checked again under the lock; with nothing to apply, no lock is needed.
    const missing = await inShortTransaction(client, () => folder.missing(client));
    if (missing.length === 0) return applied;
    const name = await migrateUnderLock(client, () => applyNext(client, folder)).catch(
      async (error: unknown) => {
        if (sqlStateOf(error) !== permissionDenied) throw error;
        throw mayNotMigrate(await missingMigrations(client, [folder]), migrateCommand, error);
      },
    );
    if (name === undefined) return applied;
    applied.push(`${name} of the ${folder.owner}`);
  }
}

/** Applies the first missing migration and returns its name, or `undefined` when none is missing. */
async function applyNext(client: pg.Client, folder: MigrationFolder): Promise<string | undefined> {
  await folder.createJournal(client);
  const [next] = await folder.missing(client);
  if (next === undefined) return undefined;
  const { name, statements, hash, createdMs } = next;
  for (const statement of statements) {
    await client.query(statement).catch((error: unknown) => {
      throw new Error(`The migration ${name} failed at: ${statement.trim()}`, { cause: error });
    });
  }
  await client.query(`insert into ${folder.journal} (hash, created_at) values ($1, $2)`, [hash, createdMs]);
  return name;
}

function mayNotMigrate(
  missing: readonly string[],
  migrateCommand: string,
  cause: unknown,
): DatabaseNotReadyError {
  return new DatabaseNotReadyError('migration-not-allowed', {
    what: `${olderSchema(missing)}, and this role may not migrate it (${messageOf(cause)})`,
    remedy: `apply them with ${migrateCommand} as the role that owns the schema, and set migrate to 'check' for this role`,
    cause,
  });
}

/**
 * Identifies a running server and one of its databases. Copies of a server share its system identifier, but not its
 * start time.
 */
async function identityOf(client: pg.Client): Promise<string | undefined> {
  try {
    const { rows } = await client.query<{ identity: string }>(
      'select (select system_identifier from pg_control_system()) || $$ $$ || ' +
        'extract(epoch from pg_postmaster_start_time()) || $$ $$ || oid as identity ' +
        'from pg_database where datname = current_database()',
    );
    return rows[0]?.identity;
  } catch (error) {
    if (error instanceof pg.DatabaseError) return undefined;
    throw error;
  }
}
