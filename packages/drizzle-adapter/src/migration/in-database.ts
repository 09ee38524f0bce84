import { FrameworkError } from '@framework/core';
import { type DatabaseConfig, databasePlace } from '@framework/core/adapter';
import { randomBytes } from 'node:crypto';
import type pg from 'pg';

import { ClosingClient, streamOf } from '../connection/client.js';
import { connectionSettings } from '../connection/connection-pool.js';
import { SilenceWatch } from '../connection/silence-watch.js';

const connectionTimeoutMs = 10_000;
/** How long whoever gives a connection up waits until its session is ended, twice at most. */
const endSessionMaxMs = 1_000;
/** How long a short transaction waits for a lock. */
const lockTimeoutMs = 3_000;

/**
 * Runs the work on a connection of its own, which ends with it. Its statements may take as long as the server is at work, see
 * {@link SilenceWatch}.
 *
 * @param signal gives it up, whatever it waits for; the server does not work on for it
 * @param purpose how operators see it in `pg_stat_activity`, with a suffix that no other connection has
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
  // The statement that was running is rejected too; without a listener the process would end.
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

/** Ends a session that would do what nobody waits for any more, with its locks, until it has an answer. */
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
    // The server notices by itself, though later.
  } finally {
    await client.end();
  }
}

/**
 * Runs the work in a transaction that waits 3 s for a lock at most. It sees before each statement what others have committed,
 * whatever the role's settings are.
 *
 * @throws errors of `pg`, such as 55P03 when a lock was not had in time
 */
export async function inShortTransaction<Result>(
  client: pg.ClientBase,
  work: () => Promise<Result>,
): Promise<Result> {
  await client.query('begin isolation level read committed');
  try {
    await client.query(`set local lock_timeout = ${lockTimeoutMs}`);
    const result = await work();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}

/** Lets statements take as long as they need, whatever the role's settings are. */
export async function endTimeouts(client: pg.Client, scope: 'transaction' | 'session'): Promise<void> {
  const isLocal = scope === 'transaction';
  // The second is not known to every version.
  await client.query(
    `select set_config('statement_timeout', '0', ${isLocal});
     select set_config('transaction_timeout', '0', ${isLocal}) where current_setting('transaction_timeout', true) is not null`,
  );
}

/**
 * Names the database when the work fails, for jobs that go through all of them.
 *
 * @throws FrameworkError as it is; an Error with the database and its place for any other, which is its cause
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
