import { type DatabaseRegistry, ShardedId } from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import { Wallet } from '../wallet/wallet.js';
import { Transfer } from './transfer.js';
import { transfers } from './transfers-table.js';

/** Transfers, on the shards of their sources. */
export class TransferRepository extends PgRepository<Transfer, typeof transfers> {
  constructor(databases: DatabaseRegistry) {
    super({ model: Transfer, table: transfers, databases });
  }

  protected toModel(row: typeof transfers.$inferSelect): Transfer {
    return new Transfer({
      ...row,
      id: ShardedId.of(Transfer, row.id),
      sourceId: ShardedId.of(Wallet, row.sourceId),
      destId: ShardedId.of(Wallet, row.destId),
      amount: new Big(row.amount),
      reason: row.reason ?? undefined,
    });
  }

  protected toRow(transfer: Transfer): typeof transfers.$inferInsert {
    return {
      ...transfer,
      id: transfer.id.value,
      sourceId: transfer.sourceId.value,
      destId: transfer.destId.value,
      amount: transfer.amount.toFixed(),
    };
  }
}
