import { Action, FrameworkAction, type Id, type Principal, ShardedId, shardedIdCodec } from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import * as z from 'zod';

import { Wallet, WalletMoneyDepositedEvent } from '../wallet/wallet.js';
import { Notification } from './notification.js';

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

const asked = z.object({ recipient: z.string().optional() });

/** Tells the recipient whom a deposit names. */
@FrameworkEventHandler({ name: 'notify-recipient-on-deposit', startFrom: 'beginning' })
export class NotifyRecipientOnDeposit implements EventHandler<WalletMoneyDepositedEvent> {
  readonly event = WalletMoneyDepositedEvent;

  async handle(
    { event, actionParams }: EventEnvelope<WalletMoneyDepositedEvent>,
    context: HandlerContext,
  ): Promise<void> {
    const { recipient } = asked.parse(actionParams);
    if (recipient === undefined) return;
    const walletId = ShardedId.of(Wallet, event.modelId);
    const text = `${event.amount.toFixed()} was deposited; the balance is ${event.newBalance.toFixed()}`;
    await context.execute(NotifyRecipientAction, { walletId, recipient, text });
  }
}
