import pg from 'pg';

/** Whether a failed migration may succeed later by itself: the database was not reached, or is starting up. */
export function isWorthWaiting(error: unknown): boolean {
  const state = sqlStateOf(error);
  return state === undefined ? isConnectionError(error) : /^(08|57P|53|55P03)/.test(state);
}

function sqlStateOf(error: unknown): string | undefined {
  if (error instanceof pg.DatabaseError) return error.code;
  return error instanceof Error && error.cause !== undefined ? sqlStateOf(error.cause) : undefined;
}

function isConnectionError(error: unknown): boolean {
  const failure = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(failure instanceof Error)) return false;
  return (
    'syscall' in failure || failure instanceof AggregateError || /connection|timeout/i.test(failure.message)
  );
}
