import pg from 'pg';

/** Whether a failed migration may succeed later by itself: the database was not reached, is starting up, or does not lead. */
export function isWorthWaiting(error: unknown): boolean {
  const state = sqlStateOf(error);
  return state === undefined ? isConnectionError(error) : /^(08|57|53|40|55P03|25006)/.test(state);
}

/** The SQLSTATE in a chain of causes. */
export function sqlStateOf(error: unknown): string | undefined {
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
