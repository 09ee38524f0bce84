import { modelColumns } from '@framework/drizzle-adapter';
import { index, numeric, pgTable, text, uuid } from 'drizzle-orm/pg-core';

import type { TransferDecisionState } from './transfer-decision.js';

const { state, ...columns } = modelColumns();

/** The table of decisions about transfers, on the shard of their destination. */
export const transferDecisions = pgTable(
  'transfer_decisions',
  {
    ...columns,
    state: state.$type<TransferDecisionState>(),
    transferId: uuid('transfer_id').notNull(),
    destId: uuid('dest_id').notNull(),
    amount: numeric('amount', { precision: 38, scale: 18 }).notNull(),
    currency: text('currency').notNull(),
    reason: text('reason'),
  },
  // Finds the decision about a transfer, as operators do for money in transit.
  (table) => [index('transfer_decisions_transfer_idx').on(table.transferId)],
);
