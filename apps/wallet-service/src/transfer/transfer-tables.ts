import { bigDecimal, modelColumns, shardedId } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import { sql } from 'drizzle-orm';
import { index, pgTable, text } from 'drizzle-orm/pg-core';

import { Wallet } from '../wallet/wallet.js';
import { TransferDecision } from './transfer-decision.js';
import { Transfer } from './transfer.js';

/** The table of transfers, on the shard of their source. */
export const transfers = pgTable(
  'transfers',
  {
    ...modelColumns(Transfer),
    sourceId: shardedId('source_id', Wallet).notNull(),
    destId: shardedId('dest_id', Wallet).notNull(),
    amount: bigDecimal('amount', Big, { precision: 38, scale: 18 }).notNull(),
    currency: text('currency').notNull(),
    reason: text('reason'),
  },
  // Finds unfinished transfers, oldest first, without reading the finished ones.
  (table) => [
    index('transfers_in_transit_idx')
      .on(table.createdDate)
      .where(sql`state = 'INITIATED'`),
  ],
);

/** The table of decisions about transfers, on the shard of their destination. */
export const transferDecisions = pgTable(
  'transfer_decisions',
  {
    ...modelColumns(TransferDecision),
    transferId: shardedId('transfer_id', Transfer).notNull(),
    destId: shardedId('dest_id', Wallet).notNull(),
    amount: bigDecimal('amount', Big, { precision: 38, scale: 18 }).notNull(),
    currency: text('currency').notNull(),
    reason: text('reason'),
  },
  // Finds the decision about a transfer, for operators who look for money in transit.
  (table) => [index('transfer_decisions_transfer_idx').on(table.transferId)],
);
