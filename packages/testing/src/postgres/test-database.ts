import { Client, escapeIdentifier } from 'pg';

/** An empty database that one test file has for itself. */
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

  /** Disconnects all sessions and drops the database; does nothing when it is gone already. */
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
