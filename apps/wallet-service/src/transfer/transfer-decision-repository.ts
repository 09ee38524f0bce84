import {
  ConstraintViolationError,
  type DatabaseRegistry,
  FrameworkError,
  ShardedId,
  shardedIdCodec,
} from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import * as z from 'zod';

import { decimal, instant } from '../wallet/money.js';
import { Wallet } from '../wallet/wallet.js';
import { TransferDecision } from './transfer-decision.js';
import { transferDecisions } from './transfer-decisions-table.js';
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

/** Decisions about transfers, on the shards of their destinations. */
export class TransferDecisionRepository extends PgRepository<TransferDecision, typeof transferDecisions> {
  constructor(databases: DatabaseRegistry) {
    super({ model: TransferDecision, table: transferDecisions, databases });
  }

  protected toModel(row: typeof transferDecisions.$inferSelect): TransferDecision {
    return new TransferDecision({
      ...row,
      id: ShardedId.of(TransferDecision, row.id),
      transferId: ShardedId.of(Transfer, row.transferId),
      destId: ShardedId.of(Wallet, row.destId),
      amount: new Big(row.amount),
      reason: row.reason ?? undefined,
    });
  }

  protected toRow(decision: TransferDecision): typeof transferDecisions.$inferInsert {
    return {
      ...decision,
      id: decision.id.value,
      transferId: decision.transferId.value,
      destId: decision.destId.value,
      amount: decision.amount.toFixed(),
    };
  }
}

/**
 * Whether a commit failed because the transfer was decided concurrently: running the action again returns that decision.
 */
export function isDecidedMeanwhile(error: unknown): boolean {
  const known = FrameworkError.find(error);
  return known instanceof ConstraintViolationError && known.constraint === 'transfer_decisions_pkey';
}
