import { ShardedId } from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import { CompleteTransferAction } from '../actions/complete-transfer-action.js';
import { Transfer } from '../transfer/transfer.js';
import { WalletTransferReceivedEvent } from '../wallet/wallet.js';

/** The last step of a transfer: notes at its source that the money has arrived. */
@FrameworkEventHandler({ name: 'complete-transfer', startFrom: 'beginning' })
export class CompleteTransfer implements EventHandler<WalletTransferReceivedEvent> {
  readonly event = WalletTransferReceivedEvent;

  async handle(
    { event }: EventEnvelope<WalletTransferReceivedEvent>,
    context: HandlerContext,
  ): Promise<void> {
    await context.execute(CompleteTransferAction, { transferId: ShardedId.of(Transfer, event.transferId) });
  }
}
