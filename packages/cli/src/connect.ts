import type { DatabaseConfig } from '@framework/core/adapter';
import { connectionSettings } from '@framework/drizzle-adapter/operation';
import pg from 'pg';

/**
 * Runs the work on a connection of its own, which is closed afterwards. It sets no timeouts on the server, so that the settings of
 * the role can be seen.
 *
 * @param timeoutMs how long connecting, and each statement, may take
 * @throws errors of `pg`, and system errors
 */
export async function onConnection<Result>(
  config: DatabaseConfig,
  timeoutMs: number,
  work: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client({
    ...connectionSettings(config),
    application_name: 'framework command line',
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  });
  // A running statement is rejected as well. Without a listener, the event would end the process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await work(client);
  } finally {
    // The goodbye must not wait for a server that does not answer.
    await Promise.race([client.end(), new Promise((resolve) => setTimeout(resolve, 500).unref())]);
  }
}
