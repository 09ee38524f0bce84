import type { DatabaseConfig } from '@framework/core';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import pg from 'pg';
import { connectionSettings } from '../connection/connection-pool.js';
import { frameworkMigrationsFolder } from '../framework-migrations-folder.js';

/** How long a process waits for another one that migrates the same database. */
const lockTimeoutMs = 300_000;
const connectionTimeoutMs = 10_000;
const partitionMonthsAhead = 3;
/** Any number, as long as it is the same in every process: names the lock among a database's advisory locks. */
const migrationLock = 7_265_814_402;

/**
 * Applies the framework's migrations and then the application's, each once, under the database's lock.
 *
 * Any number of processes may call it at once: one works, the others wait and find nothing left to do.
 *
 * @param migrationsFolder as `drizzle-kit generate` writes it
 * @throws errors of `pg` and of Drizzle's migrator as they are; see {@link isWorthWaiting}
 */
export async function migrateDatabase(
  config: DatabaseConfig,
  migrationsFolder: string | undefined,
): Promise<void> {
  const client = new pg.Client({
    ...connectionSettings(config),
    connectionTimeoutMillis: connectionTimeoutMs,
    application_name: 'framework migrations',
    lock_timeout: lockTimeoutMs,
  });
  // The statement that was running is rejected too; without a listener the process would end.
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select pg_advisory_lock($1)', [migrationLock]);
    await applyMigrations(client, migrationsFolder);
  } finally {
    // Ends the session, and with it the lock.
    await client.end();
  }
}

async function applyMigrations(client: pg.Client, migrationsFolder: string | undefined): Promise<void> {
  const db = drizzle(client);
  await migrate(db, {
    migrationsFolder: frameworkMigrationsFolder,
    migrationsSchema: 'eventlog',
    migrationsTable: 'migrations',
  });
  await client.query('select eventlog.create_partitions($1)', [partitionMonthsAhead]);
  if (migrationsFolder !== undefined) await migrate(db, { migrationsFolder });
}

/** Whether a failed migration may succeed later by itself: the database was not reached, or is starting up. */
export function isWorthWaiting(error: unknown): boolean {
  const state = sqlStateOf(error);
  return state === undefined ? isConnectionError(error) : /^(08|57P|53|55P03)/.test(state);
}

function sqlStateOf(error: unknown): string | undefined {
  if (error instanceof pg.DatabaseError) return error.code;
  return error instanceof Error && error.cause !== undefined ? sqlStateOf(error.cause) : undefined;
}

function isConnectionError(error: unknown): boolean {
  const failure = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(failure instanceof Error)) return false;
  return (
    'syscall' in failure || failure instanceof AggregateError || /connection|timeout/i.test(failure.message)
  );
}
