import { z } from '@hono/zod-openapi';
import type { Wallet } from '../../wallet/wallet.js';

const shardResource = z
  .object({ group: z.int().openapi({ example: 1 }), member: z.int().openapi({ example: 0 }) })
  .openapi('Shard');

/** The schema of a wallet as it is answered. */
export const walletSchema = z
  .object({
    id: z.uuid(),
    shard: shardResource,
    ownerId: z.uuid(),
    currency: z.string().openapi({ example: 'MXN' }),
    balance: z.string().openapi({ description: 'An exact decimal.', example: '125.50' }),
    state: z.enum(['OPENED', 'CLOSED']),
    version: z.int().openapi({ description: 'Counts the changes; the first version is 1.', example: 2 }),
    createdDate: z.iso.datetime(),
    updatedDate: z.iso.datetime(),
  })
  .openapi('Wallet');

/** Shows a wallet to clients. */
export function walletResource(wallet: Wallet): z.input<typeof walletSchema> {
  return {
    id: wallet.id.value,
    shard: wallet.id.resolveShardIdentifier(),
    ownerId: wallet.ownerId,
    currency: wallet.currency,
    balance: wallet.balance.toFixed(),
    state: wallet.state,
    version: wallet.version,
    createdDate: wallet.createdDate.toISOString(),
    updatedDate: wallet.updatedDate.toISOString(),
  };
}
