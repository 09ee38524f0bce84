import { Client } from 'pg';

import { dockerAnswers } from './docker-daemon.js';
import { PostgresServerError } from './postgres-server-error.js';
import { startEmbeddedTestPostgres } from './start-embedded-test-postgres.js';
import { TestPostgres } from './test-postgres.js';

const connectTimeoutMs = 10_000;
const image = 'postgres:18-alpine';

/**
 * A PostgreSQL server for tests: the one that `TEST_DATABASE_URL` names, else a container where a Docker daemon
 * answers, else an embedded one in a temporary folder. Only the first outlives the tests.
 *
 * The user of `TEST_DATABASE_URL` needs the right to create databases.
 *
 * @throws PostgresServerError `server-unreachable` when `TEST_DATABASE_URL` is set and does not answer.
 */
export async function startTestPostgres(): Promise<TestPostgres> {
  const url = process.env['TEST_DATABASE_URL'];
  if (url) return existing(url);
  if (await dockerAnswers()) {
    try {
      return await startContainer();
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      process.stderr.write(`Docker answers but cannot run ${image}, using embedded PostgreSQL: ${reason}\n`);
    }
  }
  return startEmbeddedTestPostgres();
}

async function existing(url: string): Promise<TestPostgres> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: connectTimeoutMs });
  try {
    await client.connect();
    await client.end();
  } catch (cause) {
    throw new PostgresServerError(
      'server-unreachable',
      `The server that TEST_DATABASE_URL names (${withoutPassword(url)}) cannot be used: ` +
        `${cause instanceof Error ? cause.message || cause.name : String(cause)}. ` +
        'Start it, correct the variable, or unset it to use a server that the tests start.',
      { cause },
    );
  }
  return new TestPostgres(url, async () => undefined);
}

async function startContainer(): Promise<TestPostgres> {
  // Loaded only here because loading it takes longer than many a test.
  const { PostgreSqlContainer } = await import('@testcontainers/postgresql');
  const container = await new PostgreSqlContainer(image)
    .withCommand(['postgres', '-c', 'fsync=off', '-c', 'max_connections=300'])
    .start();
  return new TestPostgres(container.getConnectionUri(), async () => {
    await container.stop();
  });
}

function withoutPassword(url: string): string {
  return url.replace(/\/\/[^@/]*@/, '//…@');
}
