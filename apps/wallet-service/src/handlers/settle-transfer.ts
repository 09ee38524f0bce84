import { ShardedId } from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import { SettleTransferAction } from '../actions/settle-transfer-action.js';
import { Transfer } from '../transfer/transfer.js';
import { WalletTransferReceivedEvent } from '../wallet/wallet.js';

/**
 * Step 3 of a transfer that was received: says at the source that it is complete.
 *
 * The wallet's event is committed with the decision. It is as old as the service, so a receipt from before there were
 * decisions is settled, too.
 */
@FrameworkEventHandler({ name: 'settle-transfer', aliases: ['complete-transfer'], startFrom: 'beginning' })
export class SettleTransfer implements EventHandler<WalletTransferReceivedEvent> {
  readonly event = WalletTransferReceivedEvent;

  async handle(
    { event }: EventEnvelope<WalletTransferReceivedEvent>,
    context: HandlerContext,
  ): Promise<void> {
    await context.execute(SettleTransferAction, { transferId: ShardedId.of(Transfer, event.transferId) });
  }
}
