import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';
import { accountCodec } from '../domain/account-codec.js';
import { Account } from '../domain/account.js';
import { sum } from '../domain/decimal-text.js';
import type { ModelReader } from '../model-reader.js';

interface Params {
  readonly accountId: Id<Account>;
  readonly amount: string;
}

/** What the suite's rules refuse. */
export class Overdrawn extends Error {}

/** Takes an amount out of an account, which must cover it: refuses its own repetition. */
export class WithdrawAction extends Action<Params, Account> {
  readonly #accounts: ModelReader<Account>;

  constructor(clock: Clock, accounts: ModelReader<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  protected async perform(_principal: Principal, { accountId, amount }: Params): Promise<Account> {
    const account = await this.#accounts.getById(accountId);
    if (sum(account.balance, `-${amount}`).startsWith('-')) throw new Overdrawn();
    return this.plan().update(account.credit(`-${amount}`));
  }
}

FrameworkAction({
  params: z.object({ accountId: shardedIdCodec(Account), amount: z.string() }),
  result: accountCodec,
})(WithdrawAction);
