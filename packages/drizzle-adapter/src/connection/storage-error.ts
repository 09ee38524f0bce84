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
 * SQLSTATEs after which the same transaction may succeed: rolled back for the sake of others (class 40), lock not
 * available, connection lost (class 08).
 */
const transientStates = /^(40|55P03|08)/;

/**
 * SQLSTATEs of a server that cannot serve now: timed out, shutting down, starting up (class 57), out of connections, memory
 * or disk (class 53), failed by its system, such as its disk (class 58), or with damaged tables or indexes. Whatever was asked is
 * served when somebody has repaired that.
 */
const unavailableStates = /^(57|53|58|XX00[12]|25P03|25P04)/;

/** What is wrong with such a server, and what to do; the first that matches. */
const remedies: readonly (readonly [RegExp, UnavailableKind | undefined, remedy: string])[] = [
  [/^57P/, 'not-serving', 'start the server, unless it comes back by itself'],
  [/^53/, undefined, 'give the server more of that, or less to do'],
  [/^(58|XX)/, 'damaged', "see the server's log, and repair its disk or what is damaged"],
];
const slow = [/^/, undefined, 'find in pg_stat_activity and pg_locks what keeps it'] as const;

/** What operators are told of a server that does not answer. */
export const silentRemedy = 'see that the server runs, and that the network to it does';

/** What `pg` says of a statement without an answer by its own deadline, after that of the server. */
const unansweredStatement = 'Query read timeout';

/**
 * Says what an error of `pg` means for the caller; nothing was written when it is thrown.
 *
 * Errors of the framework are passed on as they are.
 *
 * @param place is the shard's name, host and database
 */
export function storageError(shard: ShardIdentifier, error: unknown, place?: string): FrameworkError {
  const known = FrameworkError.find(error);
  if (known !== undefined) return known;
  // As the server's own timeout: at once it would only take as long again, on the next connection.
  if (error instanceof Error && error.message === unansweredStatement) {
    return new ShardUnavailableError(shard, `it did not answer a statement in time: ${silentRemedy}`, {
      place,
      cause: error,
    });
  }
  if (!(error instanceof pg.DatabaseError)) {
    return new TransientStorageError(shard, 'the connection was lost', { place, cause: error });
  }
  const state = error.code ?? '';
  if (transientStates.test(state) || isOutgrown(error))
    return new TransientStorageError(shard, error.message, { place, cause: error });
  if (isReadOnly(error)) {
    return new ShardUnavailableError(shard, readOnlyReason, { place, kind: 'read-only', cause: error });
  }
  if (isUnmigrated(error)) {
    return new ShardUnavailableError(shard, error.message, { place, kind: 'not-migrated', cause: error });
  }
  if (unavailableStates.test(state)) return unavailable(shard, error, place);
  if (state.startsWith('23')) return constraintViolation(shard, error);
  return new StorageFailureError(shard, `the database refused a statement (${state})`, { cause: error });
}

/** What a constraint demands, by its SQLSTATE. */
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

/** The columns of a key, of which the server says `Key (owner_id, currency)=(…)`, in its language; none where it is an expression. */
function columnsIn(detail: string | undefined): readonly string[] {
  const [, key = ''] = /^[^(]*\(([^()]*)\)=\(/.exec(detail ?? '') ?? [];
  return key.split(', ').filter((name) => name !== '');
}

/** Whether {@link storageError} has made an error of a lock that was not had in time: nothing was written. */
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
 * What SQLSTATEs say about a connection and a commit. Only they do: the severity is written in the server's language.
 *
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */

/** Of a session that ends, or that may have ended after its commit: classes 08, 57P, 58 and XX, and these. */
const endingStates = new Set(['25P03', '25P04', '40003']);
const endingClasses = /^(08|57P|58|XX)/;

/** Of a statement that timed out or was cancelled: other connections may fare better. */
const cancelledState = '57014';

/** Of a write that a session refuses because its transactions are read-only. */
const readOnlyState = '25006';

/** Of a lock that was not had in time. */
const lockedState = '55P03';

/** Of statements that are prepared no more, or by somebody else. */
const outgrownStates = new Set(['26000', '42P05']);

/** Says in which part of the server "cached plan must not change result type" was raised, in no language. */
const cachedPlanRoutine = 'RevalidateCachedQuery';

/** Of a schema, a table or a function that is not there. */
const missingStates = new Set(['3F000', '42P01', '42883']);
/** Names what is the framework's own, in any language of the server. */
const frameworkSchema = /\beventlog\b/;

/** The SQLSTATE in a chain of causes. */
export function sqlStateOf(error: unknown): string | undefined {
  if (error instanceof pg.DatabaseError) return error.code;
  return error instanceof Error && error.cause !== undefined ? sqlStateOf(error.cause) : undefined;
}

/** Whether the server refused a statement and said by this that nothing of its transaction is or will be committed. */
export function isRefusal(error: unknown): error is pg.DatabaseError {
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return false;
  return !endingStates.has(error.code) && !endingClasses.test(error.code);
}

/** Whether the connection is as good as before the error. */
export function isHarmless(error: unknown): boolean {
  return isRefusal(error) && error.code !== cancelledState && !isOutgrown(error);
}

/** Whether a statement in a chain of causes was given up because it took too long. */
export function isCancelled(error: unknown): boolean {
  return sqlStateOf(error) === cancelledState;
}

/** Whether a statement was refused because a lock was not had in the time that it had for that. */
export function isLockedOut(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === lockedState;
}

/** Whether a write was refused because the server, or only this session of it, takes none. */
export function isReadOnly(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === readOnlyState;
}

/** Whether a statement was refused because something of the framework is not there, as while a database is restored. */
export function isUnmigrated(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  return missingStates.has(error.code ?? '') && frameworkSchema.test(error.message);
}

/**
 * Whether a refused statement will succeed on a new connection: what this one has prepared is gone, taken, or does not fit
 * the table any more.
 */
export function isOutgrown(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  if (error.code === '0A000') return error.routine === cachedPlanRoutine;
  return outgrownStates.has(error.code ?? '');
}

/**
 * Makes a query of a prepared statement and its values.
 *
 * The statement's fields are inherited: pg copies the own fields of every query that it is given, property by property,
 * which took a tenth of a deposit's processor time.
 */
export function queryOf<Statement extends Omit<pg.QueryArrayConfig, 'values'> | pg.QueryConfig>(
  statement: Statement,
  values: unknown[],
): Statement & { readonly values: unknown[] } {
  return Object.assign(Object.create(statement) as Statement, { values });
}
