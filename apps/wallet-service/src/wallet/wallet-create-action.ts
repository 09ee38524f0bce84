import { Action, FrameworkAction, type Principal } from '@framework/core';
import * as z from 'zod';

import { decimal } from './money.js';
import { placementOf } from './placement.js';
import { Wallet } from './wallet.js';

const params = z.object({
  /** Determines the shard; see `placementOf`. */
  country: z.string(),
  ownerId: z.string(),
  currency: z.string(),
  initialBalance: decimal,
});
type Params = z.infer<typeof params>;

/** Opens a wallet on the shard of its country. */
@FrameworkAction()
export class WalletCreateAction extends Action<Params, Wallet> {
  static readonly params = params;
  static readonly result = Wallet;

  protected async perform(_principal: Principal, { country, ...wallet }: Params): Promise<Wallet> {
    const { ownerId, currency, initialBalance } = wallet;
    return this.plan().add(
      Wallet.open(placementOf(country), ownerId, currency, initialBalance, this.clock.now()),
    );
  }
}
