import { AsyncLocalStorage } from 'node:async_hooks';

/** The transactions in which callers run, for transaction managers: each is found by all that its work starts. */
export class OpenTransactions<Transaction> {
  readonly #transactions = new AsyncLocalStorage<ReadonlyMap<object, Transaction>>();

  /** The transaction that a manager has open where the caller runs, if any. */
  of(manager: object): Transaction | undefined {
    return this.#transactions.getStore()?.get(manager);
  }

  /** Runs the work within a manager's transaction, beside those of other managers. */
  runWithin<Result>(manager: object, transaction: Transaction, work: () => Promise<Result>): Promise<Result> {
    // Awaited within: what only begins when it is awaited, as a query of Drizzle does, must begin here.
    return this.#transactions.run(
      new Map(this.#transactions.getStore()).set(manager, transaction),
      async () => await work(),
    );
  }
}
