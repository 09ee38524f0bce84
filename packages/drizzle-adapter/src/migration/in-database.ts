import { randomBytes } from 'node:crypto';
import { type DatabaseConfig, FrameworkException, databasePlace } from '@framework/core';
import type pg from 'pg';
import { ClosingClient } from '../connection/closing-client.js';
import { connectionSettings } from '../connection/connection-pool.js';
import { streamOf } from '../connection/plain-client.js';
import { SilenceWatch } from '../connection/silence-watch.js';

const connectionTimeoutMs = 10_000;

/**
 * Runs the work on a connection of its own, which ends with it. Its statements may take as long as the server is at work, see
 * {@link SilenceWatch}.
 *
 * @param signal gives it up, whatever it waits for
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
  const giveUp = (): void => {
    streamOf(client).destroy();
  };
  signal?.addEventListener('abort', giveUp);
  try {
    await client.connect();
    watch.start();
    return await work(client);
  } finally {
    await client.end();
    signal?.removeEventListener('abort', giveUp);
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
 * @throws FrameworkException as it is; an Error with the database and its place for any other, which is its cause
 */
export async function namingDatabase<Result>(
  { path, address }: DatabaseConfig,
  work: Promise<Result>,
): Promise<Result> {
  try {
    return await work;
  } catch (error) {
    if (FrameworkException.is(error)) throw error;
    const reason = error instanceof Error ? error.message || error.name : String(error);
    throw new Error(`${path}: ${databasePlace(address)}: ${reason}`, { cause: error });
  }
}
