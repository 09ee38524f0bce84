import { ShardedId } from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import * as z from 'zod';
import { NotifyRecipientAction } from '../actions/notify-recipient-action.js';
import { Wallet, WalletMoneyDepositedEvent } from '../wallet/wallet.js';

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
