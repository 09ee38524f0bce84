import type { DatabaseConfig } from '@framework/core';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import pg from 'pg';
import { connectionSettings } from '../connection/connection-pool.js';
import type { EpochGuard } from '../delivery/epoch-guard.js';
import { partitionMonthsAhead } from '../delivery/pg-log-partitions.js';
import { frameworkMigrationsFolder } from '../framework-migrations-folder.js';

/** How long a process waits for another one that migrates the same database. */
const lockTimeoutMs = 300_000;
const connectionTimeoutMs = 10_000;
/** SQLSTATE of a lock that was not had in time. */
const lockNotAvailable = '55P03';
/** Any number, as long as it is the same in every process: names the lock among a database's advisory locks. */
const migrationLock = 7_265_814_402;

/**
 * Applies the framework's migrations and then the application's, each once, under the database's lock.
 *
 * Any number of processes may call it at once: one works, the others wait and find nothing left to do.
 *
 * @param migrationsFolder as `drizzle-kit generate` writes it
 * @param options.epochs is asked about the server before the application's migrations write to it
 * @param options.signal gives the attempt up, whatever it waits for; what is not committed then is not applied
 * @throws errors of `pg` and of Drizzle's migrator as they are; see `isWorthWaiting`
 */
export async function migrateDatabase(
  config: DatabaseConfig,
  migrationsFolder: string | undefined,
  { epochs, signal }: { readonly epochs: EpochGuard; readonly signal?: AbortSignal },
): Promise<void> {
  const client = new pg.Client({
    ...connectionSettings(config),
    connectionTimeoutMillis: connectionTimeoutMs,
    application_name: 'framework migrations',
    lock_timeout: lockTimeoutMs,
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
    await client.query('select pg_advisory_lock($1)', [migrationLock]);
    await applyMigrations(client, migrationsFolder, epochs);
  } finally {
    signal?.removeEventListener('abort', giveUp);
    // Ends the session, and with it the lock.
    await client.end();
  }
}

async function applyMigrations(
  client: pg.Client,
  migrationsFolder: string | undefined,
  epochs: EpochGuard,
): Promise<void> {
  const db = drizzle(client);
  await migrate(db, {
    migrationsFolder: frameworkMigrationsFolder,
    migrationsSchema: 'eventlog',
    migrationsTable: 'migrations',
  });
  await epochs.ensure(client, undefined);
  await createPartitions(client);
  if (migrationsFolder !== undefined) await migrate(db, { migrationsFolder });
}

/**
 * Creates the partitions of the next months, unless somebody reads the log: delivery creates them, too, and the default
 * partition takes what comes before they are there.
 */
async function createPartitions(client: pg.Client): Promise<void> {
  try {
    await client.query('select eventlog.create_partitions($1)', [partitionMonthsAhead]);
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || error.code !== lockNotAvailable) throw error;
  }
}

/** The socket, which `pg` offers to its own pool only: `end()` would wait for a network that is silent. */
function streamOf(client: pg.Client): { destroy(): void } {
  return (client as unknown as { readonly connection: { readonly stream: { destroy(): void } } }).connection
    .stream;
}
