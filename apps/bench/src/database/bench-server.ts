import { EmbeddedPostgres } from '@framework/embedded-postgres';
import pg from 'pg';

// As durable as PostgreSQL is by default: the cost of a commit is part of what is measured.
const settings = { shared_buffers: '512MB', max_wal_size: '4GB', max_connections: '300' } as const;

/** A separate PostgreSQL server for a run of benchmarks, in a temporary folder. */
export class BenchServer {
  readonly #server: EmbeddedPostgres;
  #databaseCount = 0;

  private constructor(server: EmbeddedPostgres) {
    this.#server = server;
  }

  /** @param others settings besides those of all benchmarks */
  static async start(others: Readonly<Record<string, string>> = {}): Promise<BenchServer> {
    return new BenchServer(await EmbeddedPostgres.startTemporary({ settings: { ...settings, ...others } }));
  }

  /** Creates an empty database and returns its URL. */
  async createDatabase(): Promise<string> {
    const name = `bench_${++this.#databaseCount}`;
    await this.#server.ensureDatabase(name);
    return this.#server.url(name);
  }

  /** The version of PostgreSQL, such as `18.4`. */
  async version(): Promise<string> {
    const [row] = await query<{ server_version: string }>(
      this.#server.url('postgres'),
      'show server_version',
    );
    return row?.server_version ?? 'unknown';
  }

  async stop(): Promise<void> {
    await this.#server.stop();
  }
}

/** Runs one statement on a connection of its own. */
export async function query<Row extends pg.QueryResultRow>(
  url: string,
  text: string,
  values: unknown[] = [],
): Promise<readonly Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(text, values)).rows;
  } finally {
    await client.end();
  }
}
