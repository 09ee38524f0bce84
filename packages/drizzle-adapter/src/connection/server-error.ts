import pg from 'pg';

/**
 * What SQLSTATEs say about a connection and a commit. Only they do: the severity is written in the server's language.
 *
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */

/** Of a session that ends, or that may have ended after its commit: classes 08, 57P, 58 and XX, and these. */
const endingStates = new Set(['25P03', '25P04', '40003']);
const endingClasses = /^(08|57P|58|XX)/;

/** Of a statement that timed out or was cancelled, and of a server that takes no writes: other connections may fare better. */
const badConnectionStates = new Set(['57014', '25006']);

/** Of statements that are prepared no more, or by somebody else. */
const outgrownStates = new Set(['26000', '42P05']);

/** Says in which part of the server "cached plan must not change result type" was raised, in no language. */
const cachedPlanRoutine = 'RevalidateCachedQuery';

/** Whether the server refused a statement and said by this that nothing of its transaction is or will be committed. */
export function isRefusal(error: unknown): error is pg.DatabaseError {
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return false;
  return !endingStates.has(error.code) && !endingClasses.test(error.code);
}

/** Whether the connection is as good as before the error. */
export function isHarmless(error: unknown): boolean {
  return isRefusal(error) && !badConnectionStates.has(error.code ?? '') && !isOutgrown(error);
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
