import { z } from '@hono/zod-openapi';
import type { Transfer } from '../../transfer/transfer.js';

/** The schema of a transfer as it is answered. */
export const transferSchema = z
  .object({
    id: z.uuid().openapi({ description: 'Carries the shard of the source.' }),
    state: z.enum(['INITIATED', 'COMPLETED', 'REFUNDED']),
    sourceId: z.uuid(),
    destId: z.uuid(),
    amount: z.string().openapi({ description: 'An exact decimal.', example: '25.50' }),
    currency: z.string().openapi({ example: 'EUR' }),
    reason: z.string().optional().openapi({ description: 'Why the money went back, when it did.' }),
    createdDate: z.iso.datetime(),
    updatedDate: z.iso.datetime(),
  })
  .openapi('Transfer');

/** Shows a transfer to clients. */
export function transferResource(transfer: Transfer): z.input<typeof transferSchema> {
  return {
    id: transfer.id.value,
    state: transfer.state,
    sourceId: transfer.sourceId.value,
    destId: transfer.destId.value,
    amount: transfer.amount.toFixed(),
    currency: transfer.currency,
    ...(transfer.reason !== undefined && { reason: transfer.reason }),
    createdDate: transfer.createdDate.toISOString(),
    updatedDate: transfer.updatedDate.toISOString(),
  };
}
