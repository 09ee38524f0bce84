import { ShardedId, shardedIdCodec } from '@framework/core';
import * as z from 'zod';
import { decimal } from '../wallet/decimal.js';
import { instant } from '../wallet/instant.js';
import { Wallet } from '../wallet/wallet.js';
import { TransferDecision } from './transfer-decision.js';
import { Transfer } from './transfer.js';

const fields = z.object({
  id: shardedIdCodec(TransferDecision),
  state: z.enum(['RECEIVED', 'REFUSED']),
  version: z.int(),
  createdDate: instant,
  updatedDate: instant,
  transferId: shardedIdCodec(Transfer),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
  currency: z.string(),
  reason: z.string().optional(),
});

/** The schema of a decision as the result of an action: what a repeat under an idempotency key is answered with. */
export const transferDecisionCodec: z.ZodType<TransferDecision> = z.codec(
  fields,
  z.instanceof(TransferDecision),
  {
    decode: (read) =>
      new TransferDecision({
        ...read,
        id: ShardedId.of(TransferDecision, read.id.value),
        reason: read.reason,
      }),
    encode: (decision) => decision,
  },
);
