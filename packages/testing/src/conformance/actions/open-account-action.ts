import { Action, FrameworkAction, type Principal, ShardIdentifier } from '@framework/core';
import * as z from 'zod';
import { accountCodec } from '../domain/account-codec.js';
import { Account } from '../domain/account.js';

interface Params {
  readonly owner: string;
  readonly group: number;
}

/** Opens an account on the first shard of a group: its params name no id, and each attempt makes another one. */
export class OpenAccountAction extends Action<Params, Account> {
  protected async perform(_principal: Principal, { owner, group }: Params): Promise<Account> {
    return this.plan().add(Account.open(ShardIdentifier.of(group, 0), this.clock.now(), { owner }));
  }
}

FrameworkAction({ params: z.object({ owner: z.string(), group: z.int() }), result: accountCodec })(
  OpenAccountAction,
);
