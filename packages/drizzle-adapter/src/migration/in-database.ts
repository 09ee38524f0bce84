import { FrameworkError } from '@framework/core';
import type { DatabaseConfig } from '@framework/core/adapter';
import { randomBytes } from 'node:crypto';
import type pg from 'pg';

import { ClosingClient, streamOf } from '../connection/client.js';
import { connectionSettings } from '../connection/connection-pool.js';
import { databasePlace } from '../connection/postgres-address.js';
import { refuseWithoutWrites } from '../connection/server-role.js';
import { SilenceWatch } from '../connection/silence-watch.js';

const connectionTimeoutMs = 10_000;
/**
 * How long to wait for the server to end a session whose connection was abandoned: once to connect, and once more for
 * the statement.
 */
const endSessionMaxMs = 1_000;
/** How long the server waits for the next statement of a transaction before it rolls the transaction back. */
const idleTimeoutMs = 10_000;
/** How long a short transaction waits for a lock, in milliseconds. */
const lockTimeoutMs = 3_000;

/**
 * Runs the work on its own connection, which is closed afterwards. Statements have no time limit as long as the server
 * is working on them, see {@link SilenceWatch}.
 *
 * @param signal aborts the work and its session on the server
 * @param purpose the start of the connection's name in `pg_stat_activity`; a unique suffix is added
 */
export async function inDatabase<Result>(
  config: DatabaseConfig,
  signal: AbortSignal | undefined,
  work: (client: pg.Client) => Promise<Result>,
  purpose = 'framework migrations',
): Promise<Result> {
  const settings = {
    ...connectionSettings(config),
    application_name: `${purpose} ${randomBytes(6).toString('hex')}`,
  };
  const client = new ClosingClient({
    ...settings,
    connectionTimeoutMillis: connectionTimeoutMs,
    keepAlive: true,
  });
  const watch = new SilenceWatch(client, settings);
  // The running statement is rejected as well. Without a listener, the event would end the process.
  client.on('error', () => undefined);
  let isConnected = false;
  let sessionEnd: Promise<void> | undefined;
  const giveUp = (): void => {
    if (isConnected) sessionEnd = endSession(settings);
    streamOf(client).destroy();
  };
  signal?.addEventListener('abort', giveUp);
  try {
    await client.connect();
    isConnected = true;
    watch.start();
    return await work(client);
  } finally {
    await client.end();
    signal?.removeEventListener('abort', giveUp);
    await sessionEnd;
  }
}

/**
 * Runs an operator's work on its own connection to a server that accepts writes, as {@link inDatabase} does.
 *
 * @param purpose the start of the connection's name in `pg_stat_activity`; a unique suffix is added
 * @throws FrameworkError unchanged; any other error as the cause of an Error with the database's path and address
 */
export function inWritableDatabase<Result>(
  config: DatabaseConfig,
  purpose: string,
  work: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const checked = async (client: pg.Client): Promise<Result> => {
    await refuseWithoutWrites(client);
    return work(client);
  };
  return namingDatabase(config, inDatabase(config, undefined, checked, purpose));
}

/** Ends a session on the server. Otherwise it would keep its locks and finish a statement whose result nobody needs. */
async function endSession(settings: pg.ClientConfig & { readonly application_name: string }): Promise<void> {
  const client = new ClosingClient({
    ...settings,
    application_name: 'framework watch',
    connectionTimeoutMillis: endSessionMaxMs,
    query_timeout: endSessionMaxMs,
  });
  client.on('error', () => undefined);
  const end = `select pg_terminate_backend(pid) from pg_stat_activity where starts_with(application_name, $1)`;
  try {
    await client.connect();
    await client.query(end, [settings.application_name]);
  } catch {
    // The server will notice on its own, though later.
  } finally {
    await client.end();
  }
}

/**
 * Runs the work in a transaction that waits at most 3 s for a lock. Each statement sees what others have committed
 * before it, whatever the role's settings are.
 *
 * @throws errors of `pg`, such as 55P03 when a lock was not available in time
 */
export async function inShortTransaction<Result>(
  client: pg.ClientBase,
  work: () => Promise<Result>,
): Promise<Result> {
  return readingCommitted(client, async () => {
    await client.query(`set local lock_timeout = ${lockTimeoutMs}`);
    return work();
  });
}

/** Removes the statement and transaction timeouts, whatever the role's settings are. */
export async function endTimeouts(client: pg.Client, scope: 'transaction' | 'session'): Promise<void> {
  const isLocal = scope === 'transaction';
  // Only PostgreSQL 17 and newer know `transaction_timeout`.
  await client.query(
    `select set_config('statement_timeout', '0', ${isLocal});
     select set_config('transaction_timeout', '0', ${isLocal}) where current_setting('transaction_timeout', true) is not null`,
  );
}

/**
 * Adds the database to the error if the work fails, for jobs that go through several databases.
 *
 * @throws FrameworkError unchanged; any other error as the cause of an Error with the database's path and address
 */
export async function namingDatabase<Result>(
  { path, address }: DatabaseConfig,
  work: Promise<Result>,
): Promise<Result> {
  try {
    return await work;
  } catch (error) {
    if (FrameworkError.is(error)) throw error;
    const reason = error instanceof Error ? error.message || error.name : String(error);
    throw new Error(`${path}: ${databasePlace(address)}: ${reason}`, { cause: error });
  }
}

/**
 * Runs the work in a transaction in which each statement sees what others have committed before it, whatever the role's
 * settings are: a statement that waited for a lock must not continue with old data. If the process disappears, the
 * server ends the transaction and its locks.
 */
export async function readingCommitted<Result>(
  client: pg.ClientBase,
  work: () => Promise<Result>,
): Promise<Result> {
  await client.query(
    `begin isolation level read committed; set local idle_in_transaction_session_timeout = ${idleTimeoutMs}`,
  );
  try {
    const result = await work();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}
