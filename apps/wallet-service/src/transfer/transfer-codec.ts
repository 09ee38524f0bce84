import { ShardedId, shardedIdCodec } from '@framework/core';
import * as z from 'zod';
import { decimal } from '../wallet/decimal.js';
import { instant } from '../wallet/instant.js';
import { Wallet } from '../wallet/wallet.js';
import { Transfer } from './transfer.js';

const fields = z.object({
  id: shardedIdCodec(Transfer),
  state: z.enum(['INITIATED', 'COMPLETED', 'REFUNDED']),
  version: z.int(),
  createdDate: instant,
  updatedDate: instant,
  sourceId: shardedIdCodec(Wallet),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
  currency: z.string(),
  reason: z.string().optional(),
});

/** The schema of a transfer as the result of an action: what a repeat under an idempotency key is answered with. */
export const transferCodec: z.ZodType<Transfer> = z.codec(fields, z.instanceof(Transfer), {
  decode: (read) => new Transfer({ ...read, id: ShardedId.of(Transfer, read.id.value), reason: read.reason }),
  encode: (transfer) => transfer,
});
