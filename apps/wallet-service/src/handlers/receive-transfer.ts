import { ShardedId } from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import { CompleteTransferAction } from '../actions/complete-transfer-action.js';
import { Transfer, TransferInitiatedEvent } from '../transfer/transfer.js';
import type { TransferRepository } from '../transfer/transfer-repository.js';

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
