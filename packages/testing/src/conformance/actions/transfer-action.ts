import { Action, type Clock, type Id, type Principal } from '@framework/core';
import type { Account } from '../domain/account.js';
import type { ModelReader } from '../model-reader.js';

interface Params {
  readonly fromId: Id<Account>;
  readonly toId: Id<Account>;
  readonly amount: string;
}

/** Moves an amount between two accounts: stages the giving one first, whatever the order of their ids. */
export class TransferAction extends Action<Params, void> {
  readonly #accounts: ModelReader<Account>;

  constructor(clock: Clock, accounts: ModelReader<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  protected async perform(_principal: Principal, { fromId, toId, amount }: Params): Promise<void> {
    const from = await this.#accounts.getById(fromId);
    const to = await this.#accounts.getById(toId);
    this.plan().update(from.credit(`-${amount}`));
    this.plan().update(to.credit(amount));
  }
}
