import type { DatabaseRegistry, Page, Repository } from '@framework/core';
import { PgRepository, bigDecimal, modelColumns } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import { eq } from 'drizzle-orm';
import { index, pgTable, text, uuid } from 'drizzle-orm/pg-core';

import { Wallet } from './wallet.js';

/** The table of wallets, the same on every shard. */
export const wallets = pgTable(
  'wallets',
  {
    ...modelColumns(Wallet),
    ownerId: uuid('owner_id').notNull(),
    currency: text('currency').notNull(),
    // Deposits can reach 20 digits before the decimal point; ten more leave room for refunds beyond that.
    balance: bigDecimal('balance', Big, { precision: 48, scale: 18 }).notNull(),
  },
  // An owner's wallets are listed in the order of ids.
  (table) => [index('wallets_owner_idx').on(table.ownerId, table.id)],
);

/** Where a page of at most `limit` wallets begins: after the wallet with this id, or at the first one. */
interface WalletPage {
  readonly limit: number;
  readonly after: string | undefined;
}

/** Wallets, on the shards that their ids name. */
export interface WalletRepository extends Repository<Wallet> {
  /** One page of an owner's wallets, over all shards, oldest first. */
  findPageByOwner(ownerId: string, page: WalletPage): Promise<Page<Wallet>>;
}

export class PgWalletRepository extends PgRepository<Wallet, typeof wallets> implements WalletRepository {
  constructor(databases: DatabaseRegistry) {
    super({ model: Wallet, table: wallets, databases });
  }

  findPageByOwner(ownerId: string, page: WalletPage): Promise<Page<Wallet>> {
    return this.findPage({ where: eq(wallets.ownerId, ownerId), ...page });
  }
}
