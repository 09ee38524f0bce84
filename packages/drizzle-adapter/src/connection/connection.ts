import type { ShardIdentifier } from '@framework/core';
import type pg from 'pg';

/**
 * Sends single statements for one shard: all that is needed of a transaction manager to read tables, keys and the log.
 */
export interface Connection {
  readonly shard: ShardIdentifier;
  /** Sends a statement within the caller's transaction if there is one, otherwise on a connection of its own. */
  query<R extends pg.QueryResultRow>(query: pg.QueryConfig | pg.QueryArrayConfig): Promise<pg.QueryResult<R>>;
}
