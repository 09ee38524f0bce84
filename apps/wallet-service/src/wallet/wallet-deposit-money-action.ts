import {
  Action,
  type ActionPolicy,
  type Clock,
  FrameworkAction,
  type Principal,
  type Repository,
} from '@framework/core';
import * as z from 'zod';

import { decimal } from './money.js';
import { Wallet, anyWalletId, versions } from './wallet.js';

const params = z.object({
  walletId: anyWalletId,
  amount: decimal,
  /** The recipient who is to be notified of the deposit. */
  recipient: z.string().optional(),
  expectedVersions: versions,
});
type Params = z.infer<typeof params>;

/** Puts money into a wallet. */
@FrameworkAction()
export class WalletDepositMoneyAction extends Action<Params, Wallet> {
  static readonly params = params;
  static readonly result = Wallet;
  readonly #wallets: Repository<Wallet>;

  constructor(clock: Clock, wallets: Repository<Wallet>, policy?: ActionPolicy<Params>) {
    super(clock, policy);
    this.#wallets = wallets;
  }

  protected async perform(
    _principal: Principal,
    { walletId, amount, expectedVersions }: Params,
  ): Promise<Wallet> {
    const wallet = await this.#wallets.getById(walletId);
    return this.plan().update(wallet.inVersion(expectedVersions).deposit(amount));
  }
}
