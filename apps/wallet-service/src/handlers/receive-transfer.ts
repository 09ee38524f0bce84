import { FrameworkException, ShardedId } from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import { ReceiveTransferAction } from '../actions/receive-transfer-action.js';
import { RefundTransferAction } from '../actions/refund-transfer-action.js';
import { Transfer, TransferInitiatedEvent } from '../transfer/transfer.js';
import type { TransferRepository } from '../transfer/transfer-repository.js';
import { WalletException } from '../wallet/wallet-exception.js';

/**
 * Step 2 of a transfer: puts the money into the destination, or back into the source when the destination refuses.
 *
 * Each action has its effect at most once, so whatever crashes in between, the money arrives or comes back, once.
 */
@FrameworkEventHandler({ name: 'receive-transfer', startFrom: 'beginning' })
export class ReceiveTransfer implements EventHandler<TransferInitiatedEvent> {
  readonly event = TransferInitiatedEvent;

  constructor(private readonly transfers: Pick<TransferRepository, 'getById'>) {}

  async handle({ event }: EventEnvelope<TransferInitiatedEvent>, context: HandlerContext): Promise<void> {
    const transferId = ShardedId.of(Transfer, event.modelId);
    const { destId, amount, currency } = event;
    const { state } = await this.transfers.getById(transferId);
    if (state !== 'INITIATED') return;
    try {
      await context.execute(ReceiveTransferAction, { transferId, destId, amount, currency });
    } catch (error) {
      const reason = refusalOf(error);
      if (reason === undefined) throw error;
      await context.execute(RefundTransferAction, { transferId, reason });
    }
  }
}

/** Why the destination will never take the money; `undefined` for what another attempt may mend. */
function refusalOf(error: unknown): string | undefined {
  if (error instanceof WalletException) return error.code;
  const code = FrameworkException.find(error)?.code;
  return code === 'entity-not-found' || code === 'unknown-shard' ? 'wallet-not-found' : undefined;
}
