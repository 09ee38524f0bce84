import { modelColumns } from '@framework/drizzle-adapter';
import { index, numeric, pgTable, text, uuid } from 'drizzle-orm/pg-core';

import type { WalletState } from './wallet.js';

const { state, ...columns } = modelColumns();

/** The table of wallets, the same on every shard. */
export const wallets = pgTable(
  'wallets',
  {
    ...columns,
    state: state.$type<WalletState>(),
    ownerId: uuid('owner_id').notNull(),
    currency: text('currency').notNull(),
    // Deposits end at 20 digits before the point; what refunds bring back beyond that has room for ten more.
    balance: numeric('balance', { precision: 48, scale: 18 }).notNull(),
  },
  // The list of an owner's wallets is read in the order of ids.
  (table) => [index('wallets_owner_idx').on(table.ownerId, table.id)],
);
