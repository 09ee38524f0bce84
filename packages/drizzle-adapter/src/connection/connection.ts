import type { ShardIdentifier } from '@framework/core';
import type pg from 'pg';

/** Sends single statements about one shard: all that reads of tables, keys and the log need of a transaction manager. */
export interface Connection {
  readonly shard: ShardIdentifier;
  /** Sends a statement: within the transaction in which the caller runs, else on a connection of its own. */
  query<R extends pg.QueryResultRow>(query: pg.QueryConfig | pg.QueryArrayConfig): Promise<pg.QueryResult<R>>;
}
