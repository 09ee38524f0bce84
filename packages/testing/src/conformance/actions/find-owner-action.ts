import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';
import { Account } from '../domain/account.js';
import type { ModelReader } from '../model-reader.js';

interface Params {
  readonly accountId: Id<Account>;
}

/** Reads and stages nothing; declares a durable name and the schemas of its params and result. */
export class FindOwnerAction extends Action<Params, string> {
  readonly #accounts: ModelReader<Account>;

  constructor(clock: Clock, accounts: ModelReader<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  protected async perform(_principal: Principal, { accountId }: Params): Promise<string> {
    const { owner } = await this.#accounts.getById(accountId);
    return owner;
  }
}

FrameworkAction({
  name: 'accounts.find-owner',
  params: z.object({ accountId: shardedIdCodec(Account) }),
  result: z.string(),
})(FindOwnerAction);
