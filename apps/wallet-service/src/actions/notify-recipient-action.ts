import { Action, FrameworkAction, type Id, type Principal, ShardedId, shardedIdCodec } from '@framework/core';
import * as z from 'zod';
import { Notification } from '../notification/notification.js';
import { Wallet } from '../wallet/wallet.js';

interface Params {
  readonly walletId: Id<Wallet>;
  readonly recipient: string;
  readonly text: string;
}

const params = z.object({ walletId: shardedIdCodec(Wallet), recipient: z.string(), text: z.string() });

/** Notes on the wallet's shard that somebody is to be told something. */
@FrameworkAction({ params })
export class NotifyRecipientAction extends Action<Params, undefined> {
  protected async perform(_principal: Principal, { walletId, recipient, text }: Params): Promise<undefined> {
    const shard = ShardedId.of(Wallet, walletId.value).resolveShardIdentifier();
    this.plan().add(Notification.of(shard, recipient, walletId, text));
  }
}
