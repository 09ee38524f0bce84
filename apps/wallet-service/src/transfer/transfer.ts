import { type Id, Model, ModelEvent, type New, ShardedId, notNull, shardedIdCodec } from '@framework/core';
import type { Big } from 'big.js';
import * as z from 'zod';

import { decimal } from '../wallet/money.js';
import { Wallet } from '../wallet/wallet.js';

/** The state of a transfer; COMPLETED and REFUNDED never change. */
export type TransferState = 'INITIATED' | 'COMPLETED' | 'REFUNDED';

/** Money in transit from one wallet to another; its id contains the source's shard. */
export class Transfer extends Model<Transfer, ShardedId<Transfer>, TransferState> {
  readonly sourceId: ShardedId<Wallet>;
  readonly destId: ShardedId<Wallet>;
  readonly amount: Big;
  readonly currency: string;
  /** Why the money was refunded. */
  readonly reason: string | undefined;

  /** @throws InvalidModelError `invalid-model` when a field is missing */
  constructor(fields: New<Transfer>) {
    super(fields);
    this.sourceId = notNull(fields.sourceId, 'sourceId cannot be null');
    this.destId = notNull(fields.destId, 'destId cannot be null');
    this.amount = notNull(fields.amount, 'amount cannot be null');
    this.currency = notNull(fields.currency, 'currency cannot be null');
    this.reason = fields.reason;
  }

  /** A transfer whose money has left the source. */
  static initiate(source: Wallet, destId: ShardedId<Wallet>, amount: Big, now: Date): Transfer {
    const { id: sourceId, currency } = source;
    const id = ShardedId.generate(Transfer, sourceId.resolveShardIdentifier());
    return new Transfer({
      id,
      state: 'INITIATED',
      createdDate: now,
      sourceId,
      destId,
      amount,
      currency,
      reason: undefined,
    }).emit(new TransferInitiatedEvent(id, sourceId, destId, amount, currency));
  }

  /** The money has arrived. */
  complete(): Transfer {
    return this.copy({ state: 'COMPLETED' }, new TransferCompletedEvent(this.id));
  }

  /** The money was refunded to the source. */
  refund(reason: string): Transfer {
    return this.copy({ state: 'REFUNDED', reason }, new TransferRefundedEvent(this.id, reason));
  }
}

/** Money has left the source, in the same commit. */
export class TransferInitiatedEvent extends ModelEvent<Transfer> {
  static readonly payload = z.object({
    sourceId: shardedIdCodec(Wallet),
    destId: shardedIdCodec(Wallet),
    amount: decimal,
    currency: z.string(),
  });
  readonly sourceId: ShardedId<Wallet>;
  readonly destId: ShardedId<Wallet>;
  readonly amount: Big;
  readonly currency: string;

  constructor(
    transferId: Id<Transfer>,
    sourceId: ShardedId<Wallet>,
    destId: ShardedId<Wallet>,
    amount: Big,
    currency: string,
  ) {
    super(transferId.toString(), Transfer);
    this.sourceId = sourceId;
    this.destId = destId;
    this.amount = amount;
    this.currency = currency;
  }
}

/** The transfer is over: the money has arrived. */
export class TransferCompletedEvent extends ModelEvent<Transfer> {
  static readonly payload = z.object({});

  constructor(transferId: Id<Transfer>) {
    super(transferId.toString(), Transfer);
  }
}

/** The transfer is over: the source has been refunded, in the same commit. */
export class TransferRefundedEvent extends ModelEvent<Transfer> {
  static readonly payload = z.object({ reason: z.string() });
  readonly reason: string;

  constructor(transferId: Id<Transfer>, reason: string) {
    super(transferId.toString(), Transfer);
    this.reason = reason;
  }
}
