import { entityColumns, shardedId } from '@framework/drizzle-adapter';
import { pgTable, text } from 'drizzle-orm/pg-core';

import { Wallet } from '../wallet/wallet.js';
import { Notification } from './notify-recipient.js';

/** The table of notifications, on the shards of the wallets that they are about. */
export const notifications = pgTable('notifications', {
  ...entityColumns(Notification),
  recipient: text('recipient').notNull(),
  walletId: shardedId('wallet_id', Wallet).notNull(),
  text: text('text').notNull(),
});
