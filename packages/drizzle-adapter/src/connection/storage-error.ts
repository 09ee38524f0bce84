import {
  ConstraintViolationError,
  FrameworkError,
  type ShardIdentifier,
  ShardUnavailableError,
  TransientStorageError,
} from '@framework/core';
import { type ConstraintKind, StorageFailureError, type UnavailableKind } from '@framework/core/adapter';
import pg from 'pg';

import { readOnlyReason } from './server-role.js';

/**
 * SQLSTATEs after which the same transaction may succeed: rolled back because of a conflict (class 40), lock not
 * available, connection lost (class 08).
 */
const transientStates = /^(40|55P03|08)/;

/**
 * SQLSTATEs of a server that cannot serve now: timeout, shutdown or start-up (class 57); out of connections, memory or
 * disk (class 53); a system error such as a broken disk (class 58); damaged tables or indexes. The same statement
 * succeeds once somebody has repaired the server.
 */
const unavailableStates = /^(57|53|58|XX00[12]|25P03|25P04)/;

/** The problem with such a server and its remedy; the first match counts. */
const remedies: readonly (readonly [RegExp, UnavailableKind | undefined, remedy: string])[] = [
  [/^57P/, 'not-serving', 'start the server if it does not restart on its own'],
  [/^53/, undefined, 'give the server more of that resource, or reduce its load'],
  [/^(58|XX)/, 'damaged', "see the server's log, and repair its disk or the damaged data"],
];
const slow = [/^/, undefined, 'look in pg_stat_activity and pg_locks for what blocks it'] as const;

/** The remedy for a server that does not answer. */
export const silentRemedy = 'check that the server is running and reachable';

/** The message of `pg` when a statement exceeds the client's own deadline, which is later than the server's. */
const unansweredStatement = 'Query read timeout';

/**
 * Translates an error of `pg` into the framework's error for the caller of a statement that wrote nothing.
 *
 * Errors of the framework are returned unchanged.
 *
 * @param place the shard's name, host and database
 */
export function storageError(shard: ShardIdentifier, error: unknown, place?: string): FrameworkError {
  const known = FrameworkError.find(error);
  if (known !== undefined) return known;
  // Treated like the server's own timeout: an immediate retry on another connection would take as long again.
  if (error instanceof Error && error.message === unansweredStatement) {
    return new ShardUnavailableError(
      shard,
      `the server did not answer a statement in time: ${silentRemedy}`,
      {
        place,
        cause: error,
      },
    );
  }
  if (!(error instanceof pg.DatabaseError)) {
    return new TransientStorageError(shard, 'the connection was lost', { place, cause: error });
  }
  const state = error.code ?? '';
  if (transientStates.test(state) || isStatementInvalid(error))
    return new TransientStorageError(shard, error.message, { place, cause: error });
  if (isReadOnly(error)) {
    return new ShardUnavailableError(shard, readOnlyReason, { place, kind: 'read-only', cause: error });
  }
  if (isUnmigrated(error)) {
    return new ShardUnavailableError(shard, error.message, { place, kind: 'not-migrated', cause: error });
  }
  if (unavailableStates.test(state)) return unavailable(shard, error, place);
  if (state.startsWith('23')) return constraintViolation(shard, error);
  return new StorageFailureError(shard, failureReason(error, state), { cause: error });
}

/** What does not exist, and how to create it; PostgreSQL's messages about these name the table or column, and no values. */
const missingRemedies: Readonly<Record<string, string>> = {
  '42P01': 'create it, or pass the folder of its migrations as migrationsFolder in postgres({ … })',
  '42703': "add it by a migration, or remove it from the table's declaration",
};

function failureReason({ message }: pg.DatabaseError, state: string): string {
  const remedy = missingRemedies[state];
  return remedy === undefined
    ? `the database refused a statement (${state})`
    : `${message} (${state}): ${remedy}`;
}

/** What kind of constraint was violated, by SQLSTATE. */
const constraintKinds: Readonly<Record<string, ConstraintKind>> = {
  '23502': 'not-null',
  '23503': 'foreign-key',
  '23505': 'unique',
  '23514': 'check',
  '23P01': 'exclusion',
};

function constraintViolation(shard: ShardIdentifier, error: pg.DatabaseError): ConstraintViolationError {
  const { constraint, table, column, detail } = error;
  const columns = column === undefined ? columnsIn(detail) : [column];
  const kind = constraintKinds[error.code ?? ''];
  return new ConstraintViolationError(shard, { constraint, table, columns, kind }, { cause: error });
}

/** The columns of a key, from the server's detail `Key (owner_id, currency)=(…)`, in its language; none if the key is an expression. */
function columnsIn(detail: string | undefined): readonly string[] {
  const [, key = ''] = /^[^(]*\(([^()]*)\)=\(/.exec(detail ?? '') ?? [];
  return key.split(', ').filter((name) => name !== '');
}

/** Whether an error from {@link storageError} means that a lock was not available in time; nothing was written. */
export function isLockTimeout(error: unknown): boolean {
  return error instanceof TransientStorageError && isLockedOut(error.cause);
}

function unavailable(
  shard: ShardIdentifier,
  error: pg.DatabaseError,
  place: string | undefined,
): ShardUnavailableError {
  const [, kind, remedy] = remedies.find(([states]) => states.test(error.code ?? '')) ?? slow;
  return new ShardUnavailableError(shard, `${error.message}: ${remedy}`, { place, kind, cause: error });
}

/**
 * What SQLSTATEs say about a connection and a commit. Nothing else is reliable: the server translates the severity.
 *
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */

/** SQLSTATEs after which the session has ended, possibly after its commit: these, and all of the classes 08, 57P, 58 and XX. */
const endingStates = new Set(['25P03', '25P04', '40003']);
const endingClasses = /^(08|57P|58|XX)/;

/** A statement timed out or was cancelled; another connection may do better. */
const cancelledState = '57014';

/** A write was refused because the session's transactions are read-only. */
const readOnlyState = '25006';

/** A lock was not available in time. */
const lockedState = '55P03';

/** A prepared statement is gone, or its name belongs to another client. */
const outgrownStates = new Set(['26000', '42P05']);

/**
 * The routine that raises "cached plan must not change result type"; unlike the message, its name is not translated.
 */
const cachedPlanRoutine = 'RevalidateCachedQuery';

/** The check of the log that refuses a session which was opened before the database was restored in place. */
const sessionCheck = 'events_run_check';

/** A schema, table or function does not exist. */
const missingStates = new Set(['3F000', '42P01', '42883']);
/** The framework's own schema, which the message names in every language. */
const frameworkSchema = /\beventlog\b/;

/** The SQLSTATE of the first server error in a chain of causes. */
export function sqlStateOf(error: unknown): string | undefined {
  if (error instanceof pg.DatabaseError) return error.code;
  return error instanceof Error && error.cause !== undefined ? sqlStateOf(error.cause) : undefined;
}

/** The innermost message, which is the server's and says what is not allowed. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : messageOf(error.cause);
}

/** Whether the server refused a statement in a way that rules out a commit of its transaction. */
export function isRefusal(error: unknown): error is pg.DatabaseError {
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return false;
  return !endingStates.has(error.code) && !endingClasses.test(error.code);
}

/** Whether the connection is still usable after the error. */
export function isHarmless(error: unknown): boolean {
  return isRefusal(error) && error.code !== cancelledState && !isStatementInvalid(error);
}

/** Whether a statement in a chain of causes was cancelled because it took too long. */
export function isCancelled(error: unknown): boolean {
  return sqlStateOf(error) === cancelledState;
}

/** Whether a statement was refused because it did not get a lock within its lock timeout. */
function isLockedOut(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === lockedState;
}

/** Whether a write was refused because the server, or only this session, is read-only. */
export function isReadOnly(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === readOnlyState;
}

/**
 * Whether a statement was refused because a part of the framework's schema is missing, for example while a dump is
 * being restored.
 */
export function isUnmigrated(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  return missingStates.has(error.code ?? '') && frameworkSchema.test(error.message);
}

/**
 * Whether a refused statement will succeed on a new connection: what this connection has prepared is gone, belongs to
 * another client, or no longer fits the table; or the database was restored since it was opened.
 */
export function isStatementInvalid(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  if (error.code === '0A000') return error.routine === cachedPlanRoutine;
  if (error.constraint === sessionCheck) return true;
  return outgrownStates.has(error.code ?? '');
}

/**
 * Makes a query from a prepared statement and its values.
 *
 * The query inherits the statement's fields. Otherwise pg would copy them property by property for every query, which was measured
 * to take a tenth of a deposit's processor time.
 */
export function queryOf<Statement extends Omit<pg.QueryArrayConfig, 'values'> | pg.QueryConfig>(
  statement: Statement,
  values: unknown[],
): Statement & { readonly values: unknown[] } {
  return Object.assign(Object.create(statement) as Statement, { values });
}
