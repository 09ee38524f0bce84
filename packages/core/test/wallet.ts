import * as z from 'zod';
import {
  type Id,
  Model,
  ModelEvent,
  type New,
  type ShardIdentifier,
  ShardedId,
  notNull,
} from '../src/index.js';

const amountSchema = z.codec(z.string(), z.bigint(), {
  decode: (text) => BigInt(text),
  encode: (amount) => amount.toString(),
});

/** The model of most tests; amounts are whole cents. */
export class Wallet extends Model<Wallet, ShardedId<Wallet>, 'OPENED' | 'CLOSED'> {
  readonly ownerId: string;
  readonly balance: bigint;

  constructor(fields: New<Wallet>) {
    super(fields);
    this.ownerId = notNull(fields.ownerId, 'ownerId cannot be null');
    this.balance = notNull(fields.balance, 'balance cannot be null');
  }

  static open(shard: ShardIdentifier, balance: bigint, now: Date): Wallet {
    const id = ShardedId.generate(Wallet, shard);
    const wallet = new Wallet({ id, state: 'OPENED', createdDate: now, ownerId: 'owner-1', balance });
    return wallet.emit(new WalletOpenedEvent(id, 'owner-1', balance));
  }

  deposit(amount: bigint): Wallet {
    const balance = this.balance + amount;
    return this.copy({ balance }, new WalletDepositedEvent(this.id, amount, balance));
  }

  close(...events: readonly ModelEvent<Wallet>[]): Wallet {
    return this.copy({ state: 'CLOSED' }, ...events);
  }
}

export class WalletOpenedEvent extends ModelEvent<Wallet> {
  static readonly payload = z.object({ ownerId: z.string(), balance: amountSchema });

  constructor(
    walletId: Id<Wallet>,
    readonly ownerId: string,
    readonly balance: bigint,
  ) {
    super(walletId.toString(), Wallet);
  }
}

export class WalletDepositedEvent extends ModelEvent<Wallet> {
  static readonly payload = z.object({ amount: amountSchema, newBalance: amountSchema });

  constructor(
    walletId: Id<Wallet>,
    readonly amount: bigint,
    readonly newBalance: bigint,
  ) {
    super(walletId.toString(), Wallet);
  }
}
