import {
  type Id,
  InvariantViolationError,
  Model,
  ModelEvent,
  type New,
  ShardedId,
  notNull,
  shardedIdCodec,
} from '@framework/core';
import type { Big } from 'big.js';
import * as z from 'zod';

import { decimal } from '../wallet/money.js';
import { Wallet } from '../wallet/wallet.js';
import { Transfer } from './transfer.js';

/** What the destination has decided; neither state ever changes. */
export type TransferDecisionState = 'RECEIVED' | 'REFUSED';

/** Money of a transfer that has arrived at its destination. */
export interface Arrival {
  readonly transferId: ShardedId<Transfer>;
  readonly destId: ShardedId<Wallet>;
  readonly amount: Big;
  readonly currency: string;
}

/**
 * The decision of a transfer's destination about the money, on the destination's shard: one per transfer, never changed.
 *
 * Its id is derived from the transfer's, so that a second decision cannot be stored.
 */
export class TransferDecision extends Model<
  TransferDecision,
  ShardedId<TransferDecision>,
  TransferDecisionState
> {
  readonly transferId: ShardedId<Transfer>;
  readonly destId: ShardedId<Wallet>;
  readonly amount: Big;
  readonly currency: string;
  /** Why the money was refused. */
  readonly reason: string | undefined;

  /** @throws InvalidModelError `invalid-model` when a field is missing */
  constructor(fields: New<TransferDecision>) {
    super(fields);
    this.transferId = notNull(fields.transferId, 'transferId cannot be null');
    this.destId = notNull(fields.destId, 'destId cannot be null');
    this.amount = notNull(fields.amount, 'amount cannot be null');
    this.currency = notNull(fields.currency, 'currency cannot be null');
    this.reason = fields.reason;
  }

  /** The id of the one decision about a transfer. */
  static idOf({ transferId, destId }: Pick<Arrival, 'transferId' | 'destId'>): ShardedId<TransferDecision> {
    return ShardedId.derive(TransferDecision, transferId, destId.resolveShardIdentifier());
  }

  /** The destination has received the money, in the same commit. */
  static received(arrival: Arrival, now: Date): TransferDecision {
    const decision = newDecision('RECEIVED', arrival, undefined, now);
    const { transferId, destId, amount, currency } = arrival;
    return decision.emit(new TransferReceivedEvent(decision.id, transferId, destId, amount, currency));
  }

  /** The destination has refused the money permanently. */
  static refused(arrival: Arrival, reason: string, now: Date): TransferDecision {
    const decision = newDecision('REFUSED', arrival, reason, now);
    const { transferId, destId, amount, currency } = arrival;
    return decision.emit(new TransferRefusedEvent(decision.id, transferId, destId, amount, currency, reason));
  }

  /**
   * This decision, if it is about the given arrival.
   *
   * @throws InvariantViolationError `invariant-violation` when the transfer was decided with another destination or amount
   */
  of(arrival: Arrival): this {
    const isSame =
      this.transferId.equals(arrival.transferId) &&
      this.destId.equals(arrival.destId) &&
      this.amount.eq(arrival.amount) &&
      this.currency === arrival.currency;
    if (isSame) return this;
    throw new InvariantViolationError(
      `Transfer ${this.transferId.value} was decided for ${this.amount.toFixed()} ${this.currency} to wallet ` +
        `${this.destId.value}, not for ${arrival.amount.toFixed()} ${arrival.currency} to ${arrival.destId.value}: ` +
        'pass the values of its TransferInitiatedEvent',
    );
  }
}

function newDecision(
  state: TransferDecisionState,
  { transferId, destId, amount, currency }: Arrival,
  reason: string | undefined,
  now: Date,
): TransferDecision {
  const id = TransferDecision.idOf({ transferId, destId });
  return new TransferDecision({ id, state, createdDate: now, transferId, destId, amount, currency, reason });
}

const arrived = {
  transferId: shardedIdCodec(Transfer),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
  currency: z.string(),
};

/** The destination has received the money, in the same commit. */
export class TransferReceivedEvent extends ModelEvent<TransferDecision> {
  static readonly payload = z.object(arrived);
  readonly transferId: ShardedId<Transfer>;
  readonly destId: ShardedId<Wallet>;
  readonly amount: Big;
  readonly currency: string;

  constructor(
    decisionId: Id<TransferDecision>,
    transferId: ShardedId<Transfer>,
    destId: ShardedId<Wallet>,
    amount: Big,
    currency: string,
  ) {
    super(decisionId.toString(), TransferDecision);
    this.transferId = transferId;
    this.destId = destId;
    this.amount = amount;
    this.currency = currency;
  }
}

/** The destination has refused the money: the only reason to refund the source. */
export class TransferRefusedEvent extends ModelEvent<TransferDecision> {
  static readonly payload = z.object({ ...arrived, reason: z.string() });
  readonly transferId: ShardedId<Transfer>;
  readonly destId: ShardedId<Wallet>;
  readonly amount: Big;
  readonly currency: string;
  readonly reason: string;

  constructor(
    decisionId: Id<TransferDecision>,
    transferId: ShardedId<Transfer>,
    destId: ShardedId<Wallet>,
    amount: Big,
    currency: string,
    reason: string,
  ) {
    super(decisionId.toString(), TransferDecision);
    this.transferId = transferId;
    this.destId = destId;
    this.amount = amount;
    this.currency = currency;
    this.reason = reason;
  }
}
