import {
  ConstraintViolationException,
  FrameworkException,
  type ShardIdentifier,
  ShardUnavailableException,
  StorageFailureException,
  TransientStorageException,
} from '@framework/core';
import pg from 'pg';

/** SQLSTATEs after which the same transaction may succeed: serialization failure, deadlock, lock not available. */
const transientStates = new Set(['40001', '40P01', '55P03']);

/** SQLSTATEs of a server that cannot serve now: timeout, shutting down, starting up, out of connections, memory or disk. */
const unavailableStates = new Set([
  '57014',
  '57P01',
  '57P02',
  '57P03',
  '57P05',
  '53000',
  '53100',
  '53200',
  '53300',
  '25P03',
]);

/**
 * Says what an error of `pg` means for the caller; nothing was written when it is thrown.
 *
 * Errors of the framework are passed on as they are.
 */
export function storageError(shard: ShardIdentifier, error: unknown): FrameworkException {
  const known = FrameworkException.find(error);
  if (known !== undefined) return known;
  if (!(error instanceof pg.DatabaseError)) {
    return new TransientStorageException(shard, 'the connection was lost', { cause: error });
  }
  const state = error.code ?? '';
  if (transientStates.has(state))
    return new TransientStorageException(shard, error.message, { cause: error });
  if (unavailableStates.has(state))
    return new ShardUnavailableException(shard, error.message, { cause: error });
  if (state.startsWith('23')) {
    const { constraint, table } = error;
    return new ConstraintViolationException(shard, { constraint, table }, { cause: error });
  }
  return new StorageFailureException(shard, `the database refused a statement (${state})`, { cause: error });
}
