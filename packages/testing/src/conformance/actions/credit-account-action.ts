import { Action, type Clock, type Id, type Principal } from '@framework/core';
import type { Account } from '../domain/account.js';
import type { ModelReader } from '../model-reader.js';

interface Params {
  readonly accountId: Id<Account>;
  readonly amount: string;
}

/** Reads one account and adds to its balance: what several executions at once compete for. */
export class CreditAccountAction extends Action<Params, Account> {
  readonly #accounts: ModelReader<Account>;

  constructor(clock: Clock, accounts: ModelReader<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  protected async perform(_principal: Principal, { accountId, amount }: Params): Promise<Account> {
    const account = await this.#accounts.getById(accountId);
    return this.plan().update(account.credit(amount));
  }
}
