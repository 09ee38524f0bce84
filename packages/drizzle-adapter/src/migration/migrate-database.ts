import { DatabaseNotReadyError } from '@framework/core';
import type { DatabaseConfig } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

import type { ConnectionGuard } from '../connection/client.js';
import { refuseInRecovery } from '../connection/server-role.js';
import { sqlStateOf } from '../connection/storage-error.js';
import { partitionMonthsAhead } from '../delivery/pg-delivery-store.js';
import { endTimeouts, inDatabase, inShortTransaction } from './in-database.js';
import { MigrationFolder } from './migration-folder.js';
import {
  missingMigrations,
  newerSchema,
  olderSchema,
  refuseOtherSchema,
  refuseUnmigrated,
  unknownMigrations,
} from './schema-check.js';

/** How long a process waits for another one that migrates the same database, and for tables that are in use. */
const patienceMs = 300_000;
/** How long a migration waits for a table at a time: statements that come later wait behind it. */
const tableLockTimeoutMs = 3_000;
const tableRetryMs = 1_000;
/** How long the server waits for the next statement of a transaction: of a process that fell silent, it rolls it back. */
const idleTimeoutMs = 10_000;
/** SQLSTATE of a lock that was not had in time. */
const lockNotAvailable = '55P03';
/** SQLSTATE of what the role may not do. */
const permissionDenied = '42501';
/** Any number, as long as it is the same in every process: names the lock among a database's advisory locks. */
const migrationLock = 7_265_814_402;

/** A migration was given up, because a table that it needs was in use for too long; while it waited, others waited behind it. */
export class TablesInUseError extends Error {
  override readonly name = 'TablesInUseError';

  constructor(cause: unknown) {
    super('A table that a migration needs is in use', { cause });
  }
}

/** What a database tells of itself when it is opened. */
export interface OpenedDatabase {
  /** The migrations that were applied, in order. */
  readonly applied: readonly string[];
  /** Whether its log has the index of an earlier release still: see `replaceDeliveryIndex`. */
  readonly hasEarlierIndex: boolean;
}

/** What opening a database brings along. */
export interface Opening {
  /** The application's migrations, as `drizzle-kit generate` writes them. */
  readonly migrationsFolder: string | undefined;
  /** Ask about the server and the database before anything of it is read or written. */
  readonly guards: readonly ConnectionGuard[];
  readonly migrateCommand: string;
  /** Called with what operators should know. */
  readonly warn: (kind: 'newer-schema' | 'log-partitions', message: string) => void;
  /** Called with what tells the database from all others, while its server runs; `undefined` when the server hides that. */
  readonly onIdentity?: (identity: string | undefined) => void;
  /** Gives the attempt up, whatever it waits for; what is not committed then is not applied. */
  readonly signal?: AbortSignal;
}

/**
 * Applies the framework's migrations and then the application's, each once, under the database's lock.
 *
 * Any number of processes may call it at once: one works, the others wait and find nothing left to do. Each has a
 * transaction of its own, to which the lock belongs, so that it holds behind a pooler, too, which may give each transaction to
 * another session.
 *
 * @throws errors of `pg` and of Drizzle's migration reader, or one that they caused
 */
export async function migrateDatabase(config: DatabaseConfig, opening: Opening): Promise<OpenedDatabase> {
  return inDatabase(config, opening.signal, async (client) => {
    await refuseInRecovery(client);
    opening.onIdentity?.(await identityOf(client));
    const folders = MigrationFolder.all(opening.migrationsFolder);
    const [framework, ...others] = folders;
    // A database of another shard is left as it is.
    await ask(client, opening);
    const applied: string[] = [];
    if (framework !== undefined) applied.push(...(await apply(client, framework, opening)));
    await refuseUnmigrated(client, opening.migrateCommand);
    await ask(client, opening);
    await createPartitions(client, opening);
    for (const folder of others) applied.push(...(await apply(client, folder, opening)));
    const unknown = await inShortTransaction(client, () => unknownMigrations(client, folders));
    if (unknown.length > 0) opening.warn('newer-schema', newerSchema(unknown));
    return { applied, hasEarlierIndex: await hasEarlierIndex(client) };
  });
}

/**
 * Looks at a database that somebody else migrates.
 *
 * @param checks whether a schema that is older or newer than the code is refused; else only one without the framework's tables
 *   and their keys
 * @throws DatabaseNotReadyError `not-migrated`, `schema-newer`, and errors of `pg`
 */
export function lookAtDatabase(
  config: DatabaseConfig,
  checks: boolean,
  opening: Opening,
): Promise<OpenedDatabase> {
  return inDatabase(config, opening.signal, async (client) => {
    await refuseInRecovery(client);
    opening.onIdentity?.(await identityOf(client));
    if (checks) {
      const folders = MigrationFolder.all(opening.migrationsFolder);
      await inShortTransaction(client, () => refuseOtherSchema(client, folders, opening.migrateCommand));
    }
    await refuseUnmigrated(client, opening.migrateCommand);
    await ask(client, opening);
    if (checks) await createPartitions(client, opening);
    return { applied: [], hasEarlierIndex: await hasEarlierIndex(client) };
  });
}

async function ask(client: pg.Client, { guards }: Opening): Promise<void> {
  for (const guard of guards) await guard.ensure(client);
}

/**
 * Creates the partitions of the next months, unless somebody reads the log: delivery creates them, too, and the default
 * partition takes what comes before they are there.
 */
async function createPartitions(client: pg.Client, { warn }: Opening): Promise<void> {
  try {
    await readingCommitted(client, () =>
      client.query('select eventlog.create_partitions($1)', [partitionMonthsAhead]),
    );
  } catch (error) {
    const state = sqlStateOf(error);
    if (state === permissionDenied) {
      warn('log-partitions', `the role may not create the partitions of the log (${messageOf(error)})`);
    } else if (state !== lockNotAvailable) throw error;
  }
}

/**
 * Runs the work in a transaction that holds the database's lock; again for as long as a table that it needs is in use.
 *
 * @throws TablesInUseError when one still is after {@link patienceMs}
 */
async function migrateUnderLock<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
  const deadlineMs = performance.now() + patienceMs;
  for (;;) {
    try {
      return await inTransaction(client, work);
    } catch (error) {
      if (!(error instanceof TablesInUseError) || performance.now() > deadlineMs) throw error;
    }
  }
}

function inTransaction<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
  return readingCommitted(client, async () => {
    // Waiting for another process, and a large migration, take their time.
    await endTimeouts(client, 'transaction');
    await client.query(`set local lock_timeout = ${patienceMs}`);
    await client.query('select pg_advisory_xact_lock($1)', [migrationLock]);
    return givingWay(client, work);
  });
}

/**
 * Runs the work; when a table that it needs is in use, gives up all tables, and lets those who waited behind it go first. The
 * database's lock is kept meanwhile, so that no other process that migrates asks for the tables either.
 */
async function givingWay<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
  await client.query(`set local lock_timeout = ${tableLockTimeoutMs}; savepoint work`);
  try {
    return await work();
  } catch (error) {
    if (sqlStateOf(error) !== lockNotAvailable) throw error;
    await client.query('rollback to savepoint work');
    await delay(tableRetryMs);
    throw new TablesInUseError(error);
  }
}

/**
 * Runs the work in a transaction that sees before each statement what others have committed, whatever the role's settings
 * are: a statement that has waited for a lock must not continue with what was there before. Its locks end with the process
 * that has them, also when the server does not hear that.
 */
async function readingCommitted<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
  await client.query(
    `begin isolation level read committed; set local idle_in_transaction_session_timeout = ${idleTimeoutMs}`,
  );
  try {
    const result = await work();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}

/**
 * Applies what a journal does not have yet, each migration in a transaction of its own: none holds the tables of the one
 * before. One that has many rows to change does so in steps, each in a transaction of its own, too: its statements run again
 * for as long as one of them answers with `unfinished`, which ends the step there.
 */
async function apply(
  client: pg.Client,
  folder: MigrationFolder,
  { migrateCommand }: Opening,
): Promise<readonly string[]> {
  const applied: string[] = [];
  for (;;) {
    // Asked again under the lock; who has nothing to apply waits for nobody.
    const missing = await inShortTransaction(client, () => folder.missing(client));
    if (missing.length === 0) return applied;
    const step = await migrateUnderLock(client, () => applyStep(client, folder)).catch(
      async (error: unknown) => {
        if (sqlStateOf(error) !== permissionDenied) throw error;
        throw mayNotMigrate(await missingMigrations(client, [folder]), migrateCommand, error);
      },
    );
    if (step === undefined) return applied;
    if (step.isLast) applied.push(`${step.name} of the ${folder.owner}`);
  }
}

/**
 * Applies what is missing first, or one step of it; gives its name and whether it is applied now, or `undefined` when nothing is
 * missing.
 */
async function applyStep(
  client: pg.Client,
  folder: MigrationFolder,
): Promise<{ readonly name: string; readonly isLast: boolean } | undefined> {
  await folder.createJournal(client);
  const [next] = await folder.missing(client);
  if (next === undefined) return undefined;
  const { name, statements, hash, createdMs } = next;
  for (const statement of statements) {
    const answer = await client
      .query<{ readonly unfinished?: unknown }>(statement)
      .catch((error: unknown) => {
        throw new Error(`The migration ${name} failed at: ${statement.trim()}`, { cause: error });
      });
    // A list when the statement is several.
    if ([answer].flat().at(-1)?.rows[0]?.unfinished === true) return { name, isLast: false };
  }
  await client.query(`insert into ${folder.journal} (hash, created_at) values ($1, $2)`, [hash, createdMs]);
  return { name, isLast: true };
}

function mayNotMigrate(
  missing: readonly string[],
  migrateCommand: string,
  cause: unknown,
): DatabaseNotReadyError {
  return new DatabaseNotReadyError('migration-not-allowed', {
    what: `${olderSchema(missing)}, which this role may not apply (${messageOf(cause)})`,
    remedy: `apply them with ${migrateCommand} as the role that owns the schema, and set migrate to check for this one`,
    cause,
  });
}

/** The message of the server, which says what is not allowed. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : messageOf(error.cause);
}

/**
 * A running server and a database of it. Copies of a server have its system identifier, but are started by themselves.
 */
async function identityOf(client: pg.Client): Promise<string | undefined> {
  try {
    const { rows } = await client.query<{ identity: string }>(
      'select (select system_identifier from pg_control_system()) || $$ $$ || ' +
        'extract(epoch from pg_postmaster_start_time()) || $$ $$ || oid as identity ' +
        'from pg_database where datname = current_database()',
    );
    return rows[0]?.identity;
  } catch (error) {
    if (error instanceof pg.DatabaseError) return undefined;
    throw error;
  }
}

async function hasEarlierIndex(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ found: boolean }>(
    `select to_regclass('eventlog.events_delivery_idx') is not null as found`,
  );
  return rows[0]?.found === true;
}
