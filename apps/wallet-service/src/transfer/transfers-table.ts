import { modelColumns } from '@framework/drizzle-adapter';
import { sql } from 'drizzle-orm';
import { index, numeric, pgTable, text, uuid } from 'drizzle-orm/pg-core';

import type { TransferState } from './transfer.js';

const { state, ...columns } = modelColumns();

/** The table of transfers, on the shard of their source. */
export const transfers = pgTable(
  'transfers',
  {
    ...columns,
    state: state.$type<TransferState>(),
    sourceId: uuid('source_id').notNull(),
    destId: uuid('dest_id').notNull(),
    amount: numeric('amount', { precision: 38, scale: 18 }).notNull(),
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
