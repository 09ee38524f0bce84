import { AsyncLocalStorage } from 'node:async_hooks';
import type pg from 'pg';

/** A transaction in which the caller runs. */
export interface OpenTransaction {
  readonly client: pg.PoolClient;
  /** Whether it has ended, while something that it started still runs. */
  over: boolean;
}

const transactions = new AsyncLocalStorage<ReadonlyMap<object, OpenTransaction>>();

/** The transaction that a manager has open where the caller runs, if any. */
export function openTransaction(manager: object): OpenTransaction | undefined {
  return transactions.getStore()?.get(manager);
}

/** Runs the work within a manager's transaction, beside those of other managers. */
export function runWithin<T>(
  manager: object,
  transaction: OpenTransaction,
  work: () => Promise<T>,
): Promise<T> {
  // Awaited within: what only begins when it is awaited, as a query of Drizzle does, must begin here.
  return transactions.run(
    new Map(transactions.getStore()).set(manager, transaction),
    async () => await work(),
  );
}
