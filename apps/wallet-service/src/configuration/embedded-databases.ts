import { relative } from 'node:path';
import { type FrameworkConfig, parseFrameworkConfig } from '@framework/core';

/** The databases of the two example shards, on a server that runs only as long as this process. */
export interface EmbeddedDatabases {
  readonly config: FrameworkConfig;
  readonly stop: () => Promise<void>;
}

const maximumPoolSize = 20;

/**
 * Starts PostgreSQL from an npm package, its data in a folder, and makes both databases unless they exist.
 *
 * @param progress hears what takes long
 * @throws PostgresServerError when the server does not start, or another process uses the folder
 */
export async function startEmbeddedDatabases(
  directory: string,
  progress: (line: string) => void,
): Promise<EmbeddedDatabases> {
  // A service with databases of its own needs none of it.
  const { EmbeddedPostgres } = await import('@framework/testing/postgres');
  progress(`Starting PostgreSQL, data in ${relative(process.cwd(), directory) || directory}`);
  const server = await EmbeddedPostgres.start({ directory, onProgress: progress });
  await server.ensureDatabase('global');
  await server.ensureDatabase('mexico');
  const group = (number: number, name: string, database: string) => ({
    group: number,
    name,
    members: [
      { member: 0, name: `${name}-1`, configs: { 'primary-config': primaryConfig(server.url(database)) } },
    ],
  });
  const config = parseFrameworkConfig({
    framework: {
      namespace: 'com.example.wallet',
      sharding: {
        'default-shard': { group: 0, member: 0 },
        groups: [group(0, 'global', 'global'), group(1, 'mexico', 'mexico')],
      },
    },
  });
  return { config, stop: () => server.stop() };
}

function primaryConfig(url: string): Readonly<Record<string, string | number>> {
  return { 'jdbc-url': url, 'maximum-pool-size': maximumPoolSize };
}
