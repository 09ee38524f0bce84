import { modelColumns, bigDecimal, shardedId } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import { sql } from 'drizzle-orm';
import { index, pgTable, text } from 'drizzle-orm/pg-core';

import { Wallet } from '../wallet/wallet.js';
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
  // What is on its way is found, oldest first, without looking at all that has ended.
  (table) => [
    index('transfers_in_transit_idx')
      .on(table.createdDate)
      .where(sql`state = 'INITIATED'`),
  ],
);
