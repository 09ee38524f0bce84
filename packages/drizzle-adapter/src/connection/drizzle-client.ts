import { InvariantViolation } from '@framework/core';
import { type NodePgDatabase, drizzle } from 'drizzle-orm/node-postgres';
import type pg from 'pg';

/** Sends a statement of Drizzle on the right connection. */
type Send = (query: pg.QueryConfig, values: unknown[]) => Promise<pg.QueryResult>;

/** What Drizzle believes to be a pool: Drizzle recognises one by this part of the class's name. */
class ShardPool {
  constructor(readonly query: Send) {}

  connect(): never {
    throw new InvariantViolation(
      "Use the transaction manager's inTransaction(…) instead of Drizzle's transaction(…)",
    );
  }
}

/** Drizzle for one shard, made once: every statement goes where the caller's transaction is, or to the pool. */
export function drizzleOn(send: Send): NodePgDatabase {
  return drizzle(new ShardPool(send) as unknown as pg.Pool);
}
