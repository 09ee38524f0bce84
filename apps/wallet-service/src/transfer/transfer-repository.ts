import { type DatabaseRegistry, ShardedId, shardedIdCodec } from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import * as z from 'zod';

import { decimal, instant } from '../wallet/money.js';
import { Wallet } from '../wallet/wallet.js';
import { Transfer } from './transfer.js';
import { transfers } from './transfers-table.js';

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

/** Transfers, on the shards of their sources. */
export class TransferRepository extends PgRepository<Transfer, typeof transfers> {
  constructor(databases: DatabaseRegistry) {
    super({ model: Transfer, table: transfers, databases });
  }

  protected toModel(row: typeof transfers.$inferSelect): Transfer {
    return new Transfer({
      ...row,
      id: ShardedId.of(Transfer, row.id),
      sourceId: ShardedId.of(Wallet, row.sourceId),
      destId: ShardedId.of(Wallet, row.destId),
      amount: new Big(row.amount),
      reason: row.reason ?? undefined,
    });
  }

  protected toRow(transfer: Transfer): typeof transfers.$inferInsert {
    return {
      ...transfer,
      id: transfer.id.value,
      sourceId: transfer.sourceId.value,
      destId: transfer.destId.value,
      amount: transfer.amount.toFixed(),
    };
  }
}
