import { Action, type Clock, FrameworkAction, type Principal } from '@framework/core';
import { Big } from 'big.js';
import type { Wallet, WalletService } from 'wallet-service';

interface Params {
  readonly walletIds: readonly Wallet['id'][];
  /** A decimal number. */
  readonly amount: string;
}

/** Adds the same amount to each of several wallets of one shard. */
@FrameworkAction()
export class DepositToManyAction extends Action<Params, readonly Wallet[]> {
  constructor(
    clock: Clock,
    private readonly wallets: Pick<WalletService['wallets'], 'findAllByIds'>,
  ) {
    super(clock);
  }

  protected async perform(_principal: Principal, { walletIds, amount }: Params): Promise<readonly Wallet[]> {
    const wallets = await this.wallets.findAllByIds(walletIds);
    return this.plan().updateAll(wallets.map((wallet) => wallet.deposit(Big(amount))));
  }
}
