import {
  ConstraintViolationException,
  FrameworkException,
  type ShardIdentifier,
  ShardUnavailableException,
  StorageFailureException,
  TransientStorageException,
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
 * or disk (class 53).
 */
const unavailableStates = /^(57|53|25P03|25P04)/;

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
    return new ShardUnavailableException(shard, 'it did not answer a statement in time', {
      place,
      cause: error,
    });
  }
  if (!(error instanceof pg.DatabaseError)) {
    return new TransientStorageException(shard, 'the connection was lost', { cause: error });
  }
  const state = error.code ?? '';
  if (transientStates.test(state) || isOutgrown(error))
    return new TransientStorageException(shard, error.message, { cause: error });
  if (isReadOnly(error)) {
    return new ShardUnavailableException(shard, readOnlyReason, { place, kind: 'read-only', cause: error });
  }
  if (isUnmigrated(error)) {
    return new ShardUnavailableException(shard, error.message, { place, kind: 'not-migrated', cause: error });
  }
  if (unavailableStates.test(state))
    return new ShardUnavailableException(shard, error.message, { place, cause: error });
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
