import { DatabaseNotReadyError } from '@framework/core/adapter';
import type pg from 'pg';

import { MigrationFolder } from './migration-folder.js';

/**
 * Refuses a database whose schema is older or newer than the code. Changes nothing.
 *
 * @param migrateCommand the command that applies missing migrations
 * @throws DatabaseNotReadyError `not-migrated` or `schema-newer`, with the missing or unknown migrations
 */
export async function refuseOtherSchema(
  client: pg.ClientBase,
  folders: readonly MigrationFolder[],
  migrateCommand: string,
): Promise<void> {
  const missing = await missingMigrations(client, folders);
  if (missing.length > 0) throw notMigrated(olderSchema(missing), migrateCommand);
  const unknown = await unknownMigrations(client, folders);
  if (unknown.length === 0) return;
  const remedy =
    'start the release that added them, or set migrate to off so that this release runs with them';
  throw new DatabaseNotReadyError('schema-newer', { what: newerSchema(unknown), remedy, cause: undefined });
}

/**
 * Refuses a database that cannot store every text: an event or an error that contains such a text could not be recorded, and would
 * be tried for ever.
 *
 * @throws DatabaseNotReadyError `other-encoding` unless the database is encoded in UTF-8
 */
export async function refuseOtherEncoding(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<{ encoding: string }>(
    `select current_setting('server_encoding') as encoding`,
  );
  const encoding = rows[0]?.encoding;
  if (encoding === 'UTF8') return;
  throw new DatabaseNotReadyError('other-encoding', {
    what: `the database is encoded in ${encoding}, which cannot store every text`,
    remedy: `create it again with encoding 'UTF8' template template0, and restore its rows into that`,
    cause: undefined,
  });
}

/** The framework's tables whose statements rely on a primary key. */
export const keyedTables: readonly string[] = [
  'blocked_models',
  'cursors',
  'epochs',
  'events',
  'handler_names',
  'handlers',
  'idempotency_keys',
  'leases',
  'operator_audit',
  'processes',
  'shards',
  'slots',
];

/**
 * Refuses a database that lacks the framework's tables or their primary keys; a restore adds the keys last. Tables
 * added by a later release may be missing.
 *
 * @throws DatabaseNotReadyError `not-migrated`
 */
export async function refuseUnmigrated(client: pg.ClientBase, migrateCommand: string): Promise<void> {
  const { rows } = await client.query<{ found: boolean; unkeyed: readonly string[] }>(
    `select to_regclass('eventlog.events') is not null as found, array(
       select name from unnest($1::text[]) as name cross join to_regclass('eventlog.' || name) as id
       where id is not null and not exists (select from pg_index where indrelid = id and indisprimary and indisvalid)
     ) as unkeyed`,
    [keyedTables],
  );
  const { found, unkeyed = [] } = rows[0] ?? {};
  if (found !== true) throw notMigrated("the framework's tables are missing", migrateCommand);
  if (unkeyed.length === 0) return;
  throw new DatabaseNotReadyError('not-migrated', {
    what: `some of the framework's tables have no primary key yet (${unkeyed.join(', ')}), as in a dump that is being restored`,
    remedy: 'the framework retries until the restore has finished',
    cause: undefined,
  });
}

function notMigrated(what: string, migrateCommand: string): DatabaseNotReadyError {
  const remedy = `apply the missing migrations with ${migrateCommand} or, if the database is being restored, wait for the restore to finish`;
  return new DatabaseNotReadyError('not-migrated', { what, remedy, cause: undefined });
}

/**
 * The migrations that a database lacks, by name and owner, in order. They are summarised if it lacks all of an owner.
 */
export async function missingMigrations(
  client: pg.ClientBase,
  folders: readonly MigrationFolder[],
): Promise<readonly string[]> {
  const missing = [];
  for (const folder of folders) {
    const names = (await folder.missing(client)).map(({ name }) => name);
    const isAll = names.length > 1 && names.length === folder.migrations.length;
    const summed = isAll ? [`all migrations (${names[0]} to ${names.at(-1)})`] : names;
    missing.push(...summed.map((name) => `${name} of the ${folder.owner}`));
  }
  return missing;
}

/** One migration that a database lacks. */
export interface PendingMigration {
  /** Its file name without the extension. */
  readonly name: string;
  /** Whose migration it is. */
  readonly owner: 'framework' | 'application';
  /** What it executes, in order. */
  readonly statements: readonly string[];
}

/** How the schema of a database differs from the migrations of this release. */
export interface SchemaState {
  /** The migrations that it lacks, in the order in which they would be applied. */
  readonly pending: readonly PendingMigration[];
  /** Describes the migrations that this release does not know, in order. */
  readonly unknown: readonly string[];
  /** The names of migrations that were applied with other statements than they have now. */
  readonly edited: readonly string[];
}

/**
 * Compares the schema of a database with the migrations of this release. Changes nothing.
 *
 * @param migrationsFolder the application's migrations, as `drizzle-kit generate` writes them; without it, they are not compared
 * @throws DatabaseNotReadyError `migration-failed` when the folder cannot be read
 * @throws errors of `pg`
 */
export async function schemaState(client: pg.ClientBase, migrationsFolder?: string): Promise<SchemaState> {
  const folders = MigrationFolder.all(migrationsFolder);
  const pending: PendingMigration[] = [];
  const edited: string[] = [];
  for (const folder of folders) {
    const { owner } = folder;
    const missing = await folder.missing(client);
    pending.push(...missing.map(({ name, statements }) => ({ name, owner, statements })));
    edited.push(...(await folder.edited(client)).map(({ name }) => `${name} of the ${owner}`));
  }
  return { pending, unknown: await unknownMigrations(client, folders), edited };
}

/** Describes the migrations of a database that the code does not know, in order. */
export async function unknownMigrations(
  client: pg.ClientBase,
  folders: readonly MigrationFolder[],
): Promise<readonly string[]> {
  const unknown = [];
  for (const folder of folders) unknown.push(...(await folder.unknown(client)));
  return unknown;
}

/** Says which migrations a database lacks. */
export function olderSchema(missing: readonly string[]): string {
  return `the schema is older than the code: it lacks ${missing.join(', ')}`;
}

/** Says which migrations the code does not know. */
export function newerSchema(unknown: readonly string[]): string {
  return `the schema is newer than the code, which does not know ${unknown.join(', ')}`;
}
