import { type DatabaseRegistry, type Page, ShardedId, shardedIdCodec } from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import { eq } from 'drizzle-orm';
import * as z from 'zod';

import { decimal, instant } from './money.js';
import { Wallet } from './wallet.js';
import { wallets } from './wallets-table.js';

const fields = z.object({
  id: shardedIdCodec(Wallet),
  state: z.enum(['OPENED', 'CLOSED']),
  version: z.int(),
  createdDate: instant,
  updatedDate: instant,
  ownerId: z.string(),
  currency: z.string(),
  balance: decimal,
});

/** The schema of a wallet as the result of an action: what a repeat under an idempotency key is answered with. */
export const walletCodec: z.ZodType<Wallet> = z.codec(fields, z.instanceof(Wallet), {
  decode: (read) => new Wallet({ ...read, id: ShardedId.of(Wallet, read.id.value) }),
  encode: (wallet) => wallet,
});

/** Wallets, on the shards that their ids name. */
export class WalletRepository extends PgRepository<Wallet, typeof wallets> {
  constructor(databases: DatabaseRegistry) {
    super({ model: Wallet, table: wallets, databases });
  }

  /** One page of an owner's wallets, over all shards, oldest first. */
  findPageByOwner(
    ownerId: string,
    page: { limit: number; after: string | undefined },
  ): Promise<Page<Wallet>> {
    return this.findPage({ where: eq(wallets.ownerId, ownerId), ...page });
  }

  protected toModel(row: typeof wallets.$inferSelect): Wallet {
    return new Wallet({ ...row, id: ShardedId.of(Wallet, row.id), balance: new Big(row.balance) });
  }

  protected toRow(wallet: Wallet): typeof wallets.$inferInsert {
    return { ...wallet, id: wallet.id.value, balance: wallet.balance.toFixed() };
  }
}
