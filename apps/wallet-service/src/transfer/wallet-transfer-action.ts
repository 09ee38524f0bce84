import {
  Action,
  type ActionPolicy,
  type Clock,
  FrameworkAction,
  type Principal,
  type Repository,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';

import { decimal } from '../wallet/money.js';
import { CurrencyMismatchError, InvalidAmountError, SameWalletError } from '../wallet/wallet-error.js';
import { Wallet } from '../wallet/wallet.js';

const params = z.object({
  sourceId: shardedIdCodec(Wallet),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
});
type Params = z.infer<typeof params>;

/**
 * Moves money between two wallets in one plan.
 *
 * If both wallets are on one shard, both changes commit together. Across shards, the caller must allow the transfer; it then takes
 * two transactions, and the second one may fail.
 */
@FrameworkAction()
export class WalletTransferAction extends Action<Params> {
  static readonly params = params;
  readonly #wallets: Repository<Wallet>;

  constructor(clock: Clock, wallets: Repository<Wallet>, policy?: ActionPolicy<Params>) {
    super(clock, policy);
    this.#wallets = wallets;
  }

  protected async perform(_principal: Principal, { sourceId, destId, amount }: Params): Promise<void> {
    if (sourceId.equals(destId)) throw new SameWalletError();
    if (amount.lte(0)) throw new InvalidAmountError('Transfer amount must be positive');
    const [source, destination] = await Promise.all([
      this.#wallets.getById(sourceId),
      this.#wallets.getById(destId),
    ]);
    if (source.currency !== destination.currency)
      throw new CurrencyMismatchError(source.currency, destination.currency);
    this.plan().updateAll([source.withdraw(amount), destination.deposit(amount)]);
  }
}
