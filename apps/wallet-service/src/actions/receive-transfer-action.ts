import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  shardedIdCodec,
} from '@framework/core';
import type { Big } from 'big.js';
import * as z from 'zod';
import { Transfer } from '../transfer/transfer.js';
import { decimal } from '../wallet/decimal.js';
import { Wallet } from '../wallet/wallet.js';
import { CurrencyMismatch } from '../wallet/wallet-exception.js';
import type { WalletRepository } from '../wallet/wallet-repository.js';

interface Params {
  readonly transferId: Id<Transfer>;
  readonly destId: Id<Wallet>;
  readonly amount: Big;
  readonly currency: string;
}

const params = z.object({
  transferId: shardedIdCodec(Transfer),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
  currency: z.string(),
});

/** Step 2 of a transfer, on the destination's shard: puts the money in. Refuses by an error, and then wrote nothing. */
@FrameworkAction({ params })
export class ReceiveTransferAction extends Action<Params, undefined> {
  constructor(
    clock: Clock,
    private readonly wallets: Pick<WalletRepository, 'getById'>,
  ) {
    super(clock);
  }

  protected async perform(
    _principal: Principal,
    { transferId, destId, amount, currency }: Params,
  ): Promise<undefined> {
    const wallet = await this.wallets.getById(destId);
    if (wallet.currency !== currency) throw new CurrencyMismatch(currency, wallet.currency);
    this.plan().update(wallet.receive(transferId.value, amount));
  }
}
