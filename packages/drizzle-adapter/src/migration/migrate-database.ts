import { setTimeout as delay } from 'node:timers/promises';
import type { DatabaseConfig } from '@framework/core';
import { type MigrationMeta, readMigrationFiles } from 'drizzle-orm/migrator';
import pg from 'pg';
import { connectionSettings } from '../connection/connection-pool.js';
import { streamOf } from '../connection/plain-client.js';
import type { EpochGuard } from '../delivery/epoch-guard.js';
import { partitionMonthsAhead } from '../delivery/pg-log-partitions.js';
import { frameworkMigrationsFolder } from '../framework-migrations-folder.js';
import { sqlStateOf } from './is-worth-waiting.js';

/** How long a process waits for another one that migrates the same database, and for tables that are in use. */
const patienceMs = 300_000;
/** How long a migration waits for a table at once: whoever comes later waits behind it. */
const tableLockTimeoutMs = 3_000;
const tableRetryMs = 1_000;
const connectionTimeoutMs = 10_000;
/** SQLSTATE of a lock that was not had in time. */
const lockNotAvailable = '55P03';
/** Any number, as long as it is the same in every process: names the lock among a database's advisory locks. */
const migrationLock = 7_265_814_402;

/** Where Drizzle's migrator keeps what is applied; so does this, for `drizzle-kit` to go on with. */
const frameworkJournal = 'eventlog.migrations';
const applicationJournal = 'drizzle.__drizzle_migrations';

/** What the migrations of a database tell of it. */
export interface MigratedDatabase {
  /** Tells it from all others, while its server runs; `undefined` when the server hides that. */
  readonly identity: string | undefined;
  /** Whether its log has the index of an earlier release still: see `replaceDeliveryIndex`. */
  readonly hasEarlierIndex: boolean;
}

/**
 * Applies the framework's migrations and then the application's, each once, under the database's lock.
 *
 * Any number of processes may call it at once: one works, the others wait and find nothing left to do. The lock belongs to
 * the transaction that migrates, so that it holds behind a pooler, too, which may give each transaction to another session.
 *
 * @param migrationsFolder as `drizzle-kit generate` writes it
 * @param options.epochs is asked about the server before the application's migrations write to it
 * @param options.signal gives the attempt up, whatever it waits for; what is not committed then is not applied
 * @throws errors of `pg` and of Drizzle's migration reader, or one that they caused; see `isWorthWaiting`
 */
export async function migrateDatabase(
  config: DatabaseConfig,
  migrationsFolder: string | undefined,
  { epochs, signal }: { readonly epochs: EpochGuard; readonly signal?: AbortSignal },
): Promise<MigratedDatabase> {
  const client = new pg.Client({
    ...connectionSettings(config),
    connectionTimeoutMillis: connectionTimeoutMs,
    application_name: 'framework migrations',
    keepAlive: true,
  });
  // The statement that was running is rejected too; without a listener the process would end.
  client.on('error', () => undefined);
  const giveUp = (): void => {
    streamOf(client).destroy();
  };
  signal?.addEventListener('abort', giveUp);
  try {
    await client.connect();
    await migrateUnderLock(client, () => apply(client, frameworkMigrationsFolder, frameworkJournal));
    await epochs.ensure(client);
    await createPartitions(client);
    if (migrationsFolder !== undefined) {
      await migrateUnderLock(client, () => apply(client, migrationsFolder, applicationJournal));
    }
    return { identity: await identityOf(client), hasEarlierIndex: await hasEarlierIndex(client) };
  } finally {
    signal?.removeEventListener('abort', giveUp);
    await client.end();
  }
}

/**
 * Creates the partitions of the next months, unless somebody reads the log: delivery creates them, too, and the default
 * partition takes what comes before they are there.
 */
async function createPartitions(client: pg.Client): Promise<void> {
  try {
    await readingCommitted(client, () =>
      client.query('select eventlog.create_partitions($1)', [partitionMonthsAhead]),
    );
  } catch (error) {
    if (sqlStateOf(error) !== lockNotAvailable) throw error;
  }
}

/** Runs the work in a transaction that holds the database's lock; again for as long as a table that it needs is in use. */
async function migrateUnderLock(client: pg.Client, work: () => Promise<void>): Promise<void> {
  const deadlineMs = performance.now() + patienceMs;
  for (;;) {
    try {
      return await inTransaction(client, work);
    } catch (error) {
      if (sqlStateOf(error) !== lockNotAvailable || performance.now() > deadlineMs) throw error;
      await delay(tableRetryMs);
    }
  }
}

function inTransaction(client: pg.Client, work: () => Promise<void>): Promise<void> {
  return readingCommitted(client, async () => {
    // Whatever the role's settings are: waiting for another process, and a large migration, take their time.
    await client.query(
      'set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0; ' +
        `set local lock_timeout = ${patienceMs}`,
    );
    await client.query('select pg_advisory_xact_lock($1)', [migrationLock]);
    await client.query(`set local lock_timeout = ${tableLockTimeoutMs}`);
    await work();
  });
}

/**
 * Runs the work in a transaction that sees before each statement what others have committed, whatever the role's settings are:
 * who has waited for a lock must not go on with what was there before.
 */
async function readingCommitted(client: pg.Client, work: () => Promise<unknown>): Promise<void> {
  await client.query('begin isolation level read committed');
  try {
    await work();
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}

/** Applies what a journal does not have yet, as Drizzle's migrator does, within the caller's transaction. */
async function apply(client: pg.Client, migrationsFolder: string, journal: string): Promise<void> {
  const migrations = readMigrationFiles({ migrationsFolder });
  await createJournal(client, journal);
  const { rows } = await client.query<{ created_at: string }>(
    `select created_at from ${journal} order by created_at desc limit 1`,
  );
  const lastMs = rows[0] === undefined ? undefined : Number(rows[0].created_at);
  for (const migration of migrations) {
    if (lastMs === undefined || lastMs < migration.folderMillis) await applyOne(client, migration, journal);
  }
}

async function applyOne(
  client: pg.Client,
  { sql, hash, folderMillis }: MigrationMeta,
  journal: string,
): Promise<void> {
  for (const statement of sql) {
    await client.query(statement).catch((error: unknown) => {
      throw new Error(`The migration failed at: ${statement.trim()}`, { cause: error });
    });
  }
  await client.query(`insert into ${journal} (hash, created_at) values ($1, $2)`, [hash, folderMillis]);
}

/** Only where it is missing: a role that may not create schemas can still find nothing to do. */
async function createJournal(client: pg.Client, journal: string): Promise<void> {
  const { rows } = await client.query<{ found: boolean }>('select to_regclass($1) is not null as found', [
    journal,
  ]);
  if (rows[0]?.found === true) return;
  await client.query(`create schema if not exists ${journal.split('.')[0]}`);
  await client.query(
    `create table if not exists ${journal} (id serial primary key, hash text not null, created_at bigint)`,
  );
}

/**
 * A running server and a database of it. Copies of a server have its system identifier, but are started by themselves.
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

async function hasEarlierIndex(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ found: boolean }>(
    `select to_regclass('eventlog.events_delivery_idx') is not null as found`,
  );
  return rows[0]?.found === true;
}
