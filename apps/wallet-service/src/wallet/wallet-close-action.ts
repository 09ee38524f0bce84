import {
  Action,
  type Clock,
  FrameworkAction,
  type Principal,
  type Repository,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';

import { Wallet } from './wallet.js';

const params = z.object({ walletId: shardedIdCodec(Wallet) });
type Params = z.infer<typeof params>;

/** Closes a wallet for good. */
@FrameworkAction({ params, result: Wallet })
export class WalletCloseAction extends Action<Params, Wallet> {
  constructor(
    clock: Clock,
    private readonly wallets: Repository<Wallet>,
  ) {
    super(clock);
  }

  protected async perform(_principal: Principal, { walletId }: Params): Promise<Wallet> {
    const wallet = await this.wallets.getById(walletId);
    return this.plan().update(wallet.close());
  }
}
