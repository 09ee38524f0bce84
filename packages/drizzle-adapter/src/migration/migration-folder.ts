import { DatabaseNotReadyError } from '@framework/core/adapter';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type pg from 'pg';

/** One migration of a folder. */
export interface Migration {
  /** Its file name without the extension. */
  readonly name: string;
  readonly statements: readonly string[];
  readonly hash: string;
  /** When it was created, in milliseconds since 1970. Determines the order, and identifies the migration. */
  readonly createdMs: number;
}

/**
 * A folder of migrations as `drizzle-kit generate` writes it, and the table in which databases record which are
 * applied.
 */
export class MigrationFolder {
  /** Whose migrations these are. */
  readonly owner: 'framework' | 'application';
  /** The table of applied migrations, the same that Drizzle's migrator and `drizzle-kit` use. */
  readonly journal: string;
  /** In the order in which they are applied. */
  readonly migrations: readonly Migration[];

  private constructor(owner: 'framework' | 'application', migrations: readonly Migration[], journal: string) {
    this.owner = owner;
    this.journal = journal;
    this.migrations = migrations;
  }

  /**
   * The framework's folder, followed by the application's.
   *
   * @throws DatabaseNotReadyError `migration-failed` when the application's folder cannot be read
   */
  static all(applicationFolder: string | undefined): readonly MigrationFolder[] {
    const framework = new MigrationFolder('framework', frameworkMigrations(), 'eventlog.migrations');
    if (applicationFolder === undefined) return [framework];
    const application = applicationMigrations(applicationFolder);
    return [framework, new MigrationFolder('application', application, 'drizzle.__drizzle_migrations')];
  }

  /** The migrations that a database lacks: those created after the last applied one, as in Drizzle's migrator. */
  async missing(client: pg.ClientBase): Promise<readonly Migration[]> {
    if (!(await this.#hasJournal(client))) return this.migrations;
    const { rows } = await client.query<{ created_at: string }>(
      `select created_at from ${this.journal} order by created_at desc limit 1`,
    );
    const lastMs = rows[0] === undefined ? -Infinity : Number(rows[0].created_at);
    return this.migrations.filter(({ createdMs }) => lastMs < createdMs);
  }

  /** Describes the migrations of a database that were created after the last one of this folder. */
  async unknown(client: pg.ClientBase): Promise<readonly string[]> {
    if (!(await this.#hasJournal(client))) return [];
    const { rows } = await client.query<{ created_at: string; hash: string }>(
      `select created_at, hash from ${this.journal} where created_at > $1 order by created_at`,
      [this.migrations.at(-1)?.createdMs ?? -1],
    );
    return rows.map(
      ({ created_at, hash }) =>
        `a migration of ${new Date(Number(created_at)).toISOString()} in ${this.journal}, hash ${hash.slice(0, 12)}`,
    );
  }

  /** The migrations that were applied with other statements than they have now, as in a file that was edited later. */
  async edited(client: pg.ClientBase): Promise<readonly Migration[]> {
    if (!(await this.#hasJournal(client))) return [];
    const { rows } = await client.query<{ created_at: string; hash: string }>(
      `select created_at, hash from ${this.journal}`,
    );
    const applied = new Map(rows.map(({ created_at, hash }) => [Number(created_at), hash]));
    return this.migrations.filter(({ createdMs, hash }) => (applied.get(createdMs) ?? hash) !== hash);
  }

  async createJournal(client: pg.ClientBase): Promise<void> {
    // Does nothing if the journal exists, so that a role that may not create schemas can still find out that there is
    // nothing to do.
    if (await this.#hasJournal(client)) return;
    await client.query(`create schema if not exists ${this.journal.split('.')[0]}`);
    await client.query(
      `create table if not exists ${this.journal} (id serial primary key, hash text not null, created_at bigint)`,
    );
  }

  async #hasJournal(client: pg.ClientBase): Promise<boolean> {
    // Does not use to_regclass: within a transaction, it still finds no schema that was created during the wait for a
    // lock.
    const { rows } = await client.query<{ found: boolean }>(
      `select exists (
         select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2
       ) as found`,
      this.journal.split('.'),
    );
    return rows[0]?.found === true;
  }
}

/** Reads the application's folder. The application ships it itself, and may have forgotten to. */
function applicationMigrations(folder: string): readonly Migration[] {
  try {
    return readMigrations(folder);
  } catch (cause) {
    throw new DatabaseNotReadyError('migration-failed', {
      what: `the application's migrations cannot be read from ${folder} (${String(cause)})`,
      remedy: 'pass the folder that drizzle-kit writes as migrationsFolder, and ship it with the application',
      cause,
    });
  }
}

/** Reads a folder as `drizzle-kit generate` writes it. */
export function readMigrations(folder: string): readonly Migration[] {
  const nameOf = namesIn(folder);
  return readMigrationFiles({ migrationsFolder: folder }).map(({ sql, hash, folderMillis }) => ({
    name: nameOf.get(folderMillis) ?? String(folderMillis),
    statements: sql,
    hash,
    createdMs: folderMillis,
  }));
}

/** The names of a folder's migrations by creation time, which Drizzle's reader leaves out. */
function namesIn(folder: string): ReadonlyMap<number, string> {
  const { entries } = JSON.parse(readFileSync(join(folder, 'meta', '_journal.json'), 'utf8')) as {
    readonly entries: readonly { readonly when: number; readonly tag: string }[];
  };
  return new Map(entries.map(({ when, tag }) => [when, tag]));
}

/** Inlined by the build, so that a bundled application needs no migration files of the framework. */
declare const builtInMigrations: readonly Migration[] | undefined;

function frameworkMigrations(): readonly Migration[] {
  return typeof builtInMigrations === 'undefined'
    ? readMigrations(fileURLToPath(new URL('../../migrations', import.meta.url)))
    : builtInMigrations;
}
