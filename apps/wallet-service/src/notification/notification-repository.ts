import { type DatabaseRegistry, ShardedId } from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';

import { Wallet } from '../wallet/wallet.js';
import { notifications } from './notifications-table.js';
import { Notification } from './notify-recipient.js';

/** Notifications, on the shards of the wallets that they are about. */
export class NotificationRepository extends PgRepository<Notification, typeof notifications> {
  constructor(databases: DatabaseRegistry) {
    super({ model: Notification, table: notifications, databases });
  }

  protected toModel(row: typeof notifications.$inferSelect): Notification {
    return new Notification({
      ...row,
      id: ShardedId.of(Notification, row.id),
      walletId: ShardedId.of(Wallet, row.walletId),
    });
  }

  protected toRow(notification: Notification): typeof notifications.$inferInsert {
    return { ...notification, id: notification.id.value, walletId: notification.walletId.value };
  }
}
