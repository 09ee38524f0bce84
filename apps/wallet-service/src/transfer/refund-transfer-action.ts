import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';

import type { WalletRepository } from '../wallet/wallet-repository.js';
import type { TransferRepository } from './transfer-repository.js';
import { Transfer } from './transfer.js';

interface Params {
  readonly transferId: Id<Transfer>;
  /** Why the destination refused. */
  readonly reason: string;
}

const params = z.object({ transferId: shardedIdCodec(Transfer), reason: z.string() });

/**
 * The last step of a transfer whose destination has refused the money, on the source's shard: puts it back, in one commit.
 *
 * Execute it for a committed refusal only, as `RefundTransfer` does; nothing else proves that the money has not arrived.
 */
@FrameworkAction({ params })
export class RefundTransferAction extends Action<Params, undefined> {
  constructor(
    clock: Clock,
    private readonly wallets: Pick<WalletRepository, 'getById'>,
    private readonly transfers: Pick<TransferRepository, 'getById'>,
  ) {
    super(clock);
  }

  protected async perform(_principal: Principal, { transferId, reason }: Params): Promise<undefined> {
    const transfer = await this.transfers.getById(transferId);
    if (transfer.state !== 'INITIATED') return;
    const source = await this.wallets.getById(transfer.sourceId);
    this.plan().update(source.takeBack(transfer.amount));
    this.plan().update(transfer.refund(reason));
  }
}
