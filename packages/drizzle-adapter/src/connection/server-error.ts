import pg from 'pg';

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
