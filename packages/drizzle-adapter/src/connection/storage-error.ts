import {
  ConstraintViolationException,
  FrameworkException,
  type ShardIdentifier,
  ShardUnavailableException,
  StorageFailureException,
  TransientStorageException,
  type UnavailableKind,
} from '@framework/core';
import pg from 'pg';
import { isLockedOut, isOutgrown, isReadOnly, isUnmigrated } from './server-error.js';
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
export function storageError(shard: ShardIdentifier, error: unknown, place?: string): FrameworkException {
  const known = FrameworkException.find(error);
  if (known !== undefined) return known;
  // As the server's own timeout: at once it would only take as long again, on the next connection.
  if (error instanceof Error && error.message === unansweredStatement) {
    return new ShardUnavailableException(shard, `it did not answer a statement in time: ${silentRemedy}`, {
      place,
      cause: error,
    });
  }
  if (!(error instanceof pg.DatabaseError)) {
    return new TransientStorageException(shard, 'the connection was lost', { place, cause: error });
  }
  const state = error.code ?? '';
  if (transientStates.test(state) || isOutgrown(error))
    return new TransientStorageException(shard, error.message, { place, cause: error });
  if (isReadOnly(error)) {
    return new ShardUnavailableException(shard, readOnlyReason, { place, kind: 'read-only', cause: error });
  }
  if (isUnmigrated(error)) {
    return new ShardUnavailableException(shard, error.message, { place, kind: 'not-migrated', cause: error });
  }
  if (unavailableStates.test(state)) return unavailable(shard, error, place);
  if (state.startsWith('23')) {
    const { constraint, table } = error;
    return new ConstraintViolationException(shard, { constraint, table }, { cause: error });
  }
  return new StorageFailureException(shard, `the database refused a statement (${state})`, { cause: error });
}

/** Whether {@link storageError} has made an error of a lock that was not had in time: nothing was written. */
export function isLockTimeout(error: unknown): boolean {
  return error instanceof TransientStorageException && isLockedOut(error.cause);
}

function unavailable(
  shard: ShardIdentifier,
  error: pg.DatabaseError,
  place: string | undefined,
): ShardUnavailableException {
  const [, kind, remedy] = remedies.find(([states]) => states.test(error.code ?? '')) ?? slow;
  return new ShardUnavailableException(shard, `${error.message}: ${remedy}`, { place, kind, cause: error });
}
