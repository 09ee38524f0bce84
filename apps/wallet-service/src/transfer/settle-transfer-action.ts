import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';

import type { TransferRepository } from './transfer-repository.js';
import { Transfer } from './transfer.js';

interface Params {
  readonly transferId: Id<Transfer>;
}

const params = z.object({ transferId: shardedIdCodec(Transfer) });

/** The last step of a transfer whose destination has received the money, on the source's shard: says so there. */
@FrameworkAction({ params })
export class SettleTransferAction extends Action<Params, undefined> {
  constructor(
    clock: Clock,
    private readonly transfers: Pick<TransferRepository, 'getById'>,
  ) {
    super(clock);
  }

  protected async perform(_principal: Principal, { transferId }: Params): Promise<undefined> {
    const transfer = await this.transfers.getById(transferId);
    if (transfer.state === 'INITIATED') this.plan().update(transfer.complete());
  }
}
