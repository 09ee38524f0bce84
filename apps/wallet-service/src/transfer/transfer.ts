import { type Id, Model, type New, ShardedId, notNull } from '@framework/core';
import type { Big } from 'big.js';
import type { Wallet } from '../wallet/wallet.js';

/** How far a transfer has come. */
export type TransferState = 'INITIATED' | 'COMPLETED' | 'REFUNDED';

/** Money on its way from one wallet to another; its id carries the source's shard. */
export class Transfer extends Model<Transfer, ShardedId<Transfer>, TransferState> {
  readonly sourceId: Id<Wallet>;
  readonly destId: Id<Wallet>;
  readonly amount: Big;
  readonly currency: string;

  /** @throws InvalidModelException `invalid-model` when a field is missing */
  constructor(fields: New<Transfer>) {
    super(fields);
    this.sourceId = notNull(fields.sourceId, 'sourceId cannot be null');
    this.destId = notNull(fields.destId, 'destId cannot be null');
    this.amount = notNull(fields.amount, 'amount cannot be null');
    this.currency = notNull(fields.currency, 'currency cannot be null');
  }

  /** A transfer whose two sides commit together, and which is therefore complete at once. */
  static completed(source: Wallet, destination: Wallet, amount: Big, now: Date): Transfer {
    return new Transfer({
      id: ShardedId.generate(Transfer, source.id.resolveShardIdentifier()),
      state: 'COMPLETED',
      createdDate: now,
      sourceId: source.id,
      destId: destination.id,
      amount,
      currency: source.currency,
    });
  }
}
