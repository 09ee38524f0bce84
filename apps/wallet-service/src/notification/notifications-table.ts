import { entityColumns } from '@framework/drizzle-adapter';
import { pgTable, text, uuid } from 'drizzle-orm/pg-core';

const { state, ...columns } = entityColumns();

/** The table of notifications, on the shards of the wallets that they are about. */
export const notifications = pgTable('notifications', {
  ...columns,
  state: state.$type<'PENDING'>(),
  recipient: text('recipient').notNull(),
  walletId: uuid('wallet_id').notNull(),
  text: text('text').notNull(),
});
