import { randomBytes } from 'node:crypto';

import { Client, escapeIdentifier } from 'pg';

import { TestDatabase } from './test-database.js';

/** A PostgreSQL server for one test run, which hands out empty databases. */
export class TestPostgres {
  /** The connection URL of the server's administrator, password included. */
  readonly url: string;
  readonly #stop: () => Promise<void>;

  /** Takes the administrator's URL, and what is to be done when the server is no longer needed. */
  constructor(url: string, stop: () => Promise<void>) {
    this.url = url;
    this.#stop = stop;
  }

  /** Creates an empty database of a name that no other has. */
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

  /** Stops the server, unless it was there before; its databases are gone then. */
  async stop(): Promise<void> {
    await this.#stop();
  }
}
