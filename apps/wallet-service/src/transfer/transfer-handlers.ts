import { ShardedId } from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';

import { WalletTransferReceivedEvent } from '../wallet/wallet.js';
import { CompleteTransferAction } from './complete-transfer-action.js';
import { RefundTransferAction } from './refund-transfer-action.js';
import { SettleTransferAction } from './settle-transfer-action.js';
import { TransferRefusedEvent } from './transfer-decision.js';
import type { TransferRepository } from './transfer-repository.js';
import { Transfer, TransferInitiatedEvent } from './transfer.js';

/**
 * Step 2 of a transfer: has the destination decide about the money.
 *
 * An error says nothing about what was decided: the event is tried again until there is a decision, however long its shard
 * is down, or not configured in the process that tries. What follows is the business of the decision's events.
 */
@FrameworkEventHandler({ name: 'receive-transfer', startFrom: 'beginning' })
export class ReceiveTransfer implements EventHandler<TransferInitiatedEvent> {
  readonly event = TransferInitiatedEvent;

  constructor(private readonly transfers: Pick<TransferRepository, 'getById'>) {}

  async handle({ event }: EventEnvelope<TransferInitiatedEvent>, context: HandlerContext): Promise<void> {
    const transferId = ShardedId.of(Transfer, event.modelId);
    const { destId, amount, currency } = event;
    // Before there were decisions, a transfer could be refunded without one.
    const { state } = await this.transfers.getById(transferId);
    if (state !== 'INITIATED') return;
    await context.execute(CompleteTransferAction, { transferId, destId, amount, currency });
  }
}

/** Step 3 of a transfer that was refused: puts the money back into the source. Nothing but the committed refusal leads here. */
@FrameworkEventHandler({ name: 'refund-transfer', startFrom: 'beginning' })
export class RefundTransfer implements EventHandler<TransferRefusedEvent> {
  readonly event = TransferRefusedEvent;

  async handle({ event }: EventEnvelope<TransferRefusedEvent>, context: HandlerContext): Promise<void> {
    const { transferId, reason } = event;
    await context.execute(RefundTransferAction, { transferId, reason });
  }
}

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
