import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Client, escapeIdentifier } from 'pg';

import {
  type Cluster,
  asUnusableDirectory,
  dataDirectoryIn,
  openCluster,
  removeRemains,
  superuser,
} from './cluster.js';
import { Deadline } from './deadline.js';
import { serverAccount } from './server-account.js';
import { packagedServer, serverBinaries } from './server-binaries.js';
import { type StartedServer, startServer } from './start-server.js';

const startTimeoutMs = 60_000;
const binaryCaches = ['/var/cache', tmpdir()] as const;
const temporaryPrefix = 'temporary-postgres-';

/** Where and how an embedded server is started. */
export interface EmbeddedPostgresOptions {
  /** The folder for everything the server keeps; created when absent. One server at a time runs in it. */
  readonly directory: string;
  /** PostgreSQL settings such as `{ fsync: 'off' }`; the defaults are PostgreSQL's own. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The TCP port to listen on, such as that of a server that was killed; waited for while it is taken. Default: any free one. */
  readonly port?: number;
  /** Hears one line for each step that may take long. */
  readonly onProgress?: (message: string) => void;
  /** How long the start may take in all, 60 s by default; recovery after a crash of a large database is in it. */
  readonly startTimeoutMs?: number;
}

/**
 * A PostgreSQL server that needs no installation: real binaries from an npm package, for development and tests.
 *
 * It listens on 127.0.0.1 only, on a free port that changes from start to start unless one is given. It ends with the process that started
 * it, also when that one is killed, and the next start finds every acknowledged commit and nothing to be removed by
 * hand, whatever was killed before.
 */
export class EmbeddedPostgres {
  readonly host = '127.0.0.1';
  readonly user = superuser;
  readonly port: number;
  readonly #cluster: Cluster;
  readonly #server: StartedServer;
  #temporaryDirectory: string | undefined;

  private constructor(cluster: Cluster, server: StartedServer) {
    this.port = server.port;
    this.#cluster = cluster;
    this.#server = server;
    void server.process.exited.then(() => server.owner.close());
  }

  /**
   * Starts the server of this folder, and creates it first when the folder has none.
   *
   * @throws PostgresServerError `directory-in-use` while another live process runs its server there,
   * `directory-unusable` when the folder may not be read or written or lacks a part, `initialisation-failed` or `start-failed` with the last lines of the log, `unsupported-platform`.
   */
  static async start(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
    const directory = resolve(options.directory);
    try {
      return await EmbeddedPostgres.#startIn(directory, options);
    } catch (error) {
      throw asUnusableDirectory(error, directory);
    }
  }

  /**
   * Starts a server that is thrown away: in a temporary folder, which `stop` removes. Those of processes that were killed are
   * removed on the way.
   *
   * @throws PostgresServerError as `start` does.
   */
  static async startTemporary(
    options: Omit<EmbeddedPostgresOptions, 'directory'> = {},
  ): Promise<EmbeddedPostgres> {
    await removeRemains(tmpdir(), temporaryPrefix);
    const directory = await mkdtemp(join(tmpdir(), `${temporaryPrefix}${process.pid}-`));
    const server = await EmbeddedPostgres.start({ ...options, directory });
    server.#temporaryDirectory = directory;
    return server;
  }

  static async #startIn(directory: string, options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
    const { settings = {}, onProgress = () => undefined } = options;
    const deadline = Deadline.after(options.startTimeoutMs ?? startTimeoutMs);
    await mkdir(directory, { recursive: true });
    const account = await serverAccount(dataDirectoryIn(directory));
    const binaries = await serverBinaries(await packagedServer(), account, binaryCaches);
    const durable = settings['fsync'] !== 'off';
    const cluster = await openCluster({ directory, account, binaries, durable, onProgress });
    return new EmbeddedPostgres(
      cluster,
      await startServer({ cluster, account, binaries, settings, deadline, port: options.port }),
    );
  }

  /** The superuser's password; generated once for the folder. */
  get password(): string {
    return this.#cluster.password;
  }

  /** PostgreSQL's data directory. */
  get dataDirectory(): string {
    return this.#cluster.dataDirectory;
  }

  /** The file that the server's log is appended to. */
  get logFile(): string {
    return this.#cluster.logFile;
  }

  /** Settles when the server has ended, by `stop` or by itself. */
  get exited(): Promise<unknown> {
    return this.#server.process.exited;
  }

  /** The connection URL of a database, password included. */
  url(database: string): string {
    return `postgres://${this.user}:${this.password}@${this.host}:${this.port}/${encodeURIComponent(database)}`;
  }

  /** Creates the database unless it exists. */
  async ensureDatabase(name: string): Promise<void> {
    await createDatabaseIfAbsent(this.url('postgres'), name);
  }

  /** Stops the server: sessions are ended, data is flushed; after 10 s by force, which the next start recovers from. */
  async stop(): Promise<void> {
    await Promise.all([this.#server.owner.close(), this.#server.process.stop()]);
    if (this.#temporaryDirectory !== undefined)
      await rm(this.#temporaryDirectory, { recursive: true, force: true });
  }
}

const duplicateDatabase = '42P04';
const uniqueViolation = '23505'; // What two simultaneous creations may end in.

/** Creates the database on the server of `url` unless it exists. */
async function createDatabaseIfAbsent(url: string, name: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (rowCount === 0) await client.query(`create database ${escapeIdentifier(name)}`);
  } catch (error) {
    const { code } = error as { readonly code?: string };
    if (code !== duplicateDatabase && code !== uniqueViolation) throw error;
  } finally {
    await client.end();
  }
}
