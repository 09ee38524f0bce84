import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import { RefundTransferAction } from '../actions/refund-transfer-action.js';
import { TransferRefusedEvent } from '../transfer/transfer-decision.js';

/** Step 3 of a transfer that was refused: puts the money back into the source. Nothing but the committed refusal leads here. */
@FrameworkEventHandler({ name: 'refund-transfer', startFrom: 'beginning' })
export class RefundTransfer implements EventHandler<TransferRefusedEvent> {
  readonly event = TransferRefusedEvent;

  async handle({ event }: EventEnvelope<TransferRefusedEvent>, context: HandlerContext): Promise<void> {
    const { transferId, reason } = event;
    await context.execute(RefundTransferAction, { transferId, reason });
  }
}
