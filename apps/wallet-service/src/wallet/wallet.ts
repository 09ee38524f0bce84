import {
  Id,
  Model,
  ModelEvent,
  type New,
  type ShardIdentifier,
  ShardedId,
  notNull,
  shardedIdCodec,
} from '@framework/core';
import type { Big } from 'big.js';
import * as z from 'zod';

import { assertAmountOf, decimal } from './money.js';
import {
  InsufficientFundsError,
  InvalidAmountError,
  UnexpectedVersionError,
  WalletClosedError,
} from './wallet-error.js';

/** A wallet's id as a param for which callers may pass any `Id<Wallet>`: its text must be the UUID of a wallet. */
export const anyWalletId = z.codec(
  z.uuidv7(),
  z.custom<Id<Wallet>>((value) => value instanceof Id, 'Invalid input: expected an Id of a wallet'),
  {
    decode: (text) => ShardedId.of(Wallet, text),
    encode: ({ value }) => value.toLowerCase(),
  },
);

/** The param of a change that is made only if the wallet has one of these versions. */
export const versions = z.array(z.int()).readonly().optional();

/** Whether money can still be moved. */
export type WalletState = 'OPENED' | 'CLOSED';

/** Money of one owner in one currency: decides without side effects. */
export class Wallet extends Model<Wallet, ShardedId<Wallet>, WalletState> {
  readonly ownerId: string;
  /** An ISO 4217 code. */
  readonly currency: string;
  /** The exact amount of money in the wallet, never negative. */
  readonly balance: Big;

  /** @throws InvalidModelError `invalid-model` when a field is missing */
  constructor(fields: New<Wallet>) {
    super(fields);
    this.ownerId = notNull(fields.ownerId, 'ownerId cannot be null');
    this.currency = notNull(fields.currency, 'currency cannot be null');
    this.balance = notNull(fields.balance, 'balance cannot be null');
  }

  /**
   * Opens a wallet on a shard.
   *
   * @throws UnknownCurrencyError `unknown-currency`, InvalidAmountError `invalid-amount` for the first balance
   */
  static open(shard: ShardIdentifier, ownerId: string, currency: string, balance: Big, now: Date): Wallet {
    const id = ShardedId.generate(Wallet, shard);
    const wallet = new Wallet({ id, state: 'OPENED', createdDate: now, ownerId, currency, balance });
    assertAmountOf(currency, balance);
    if (balance.lt(0)) throw new InvalidAmountError('Initial balance must not be negative');
    return wallet.emit(new WalletCreatedEvent(id, ownerId, currency, balance));
  }

  /**
   * Puts money into the wallet.
   *
   * @throws InvalidAmountError `invalid-amount`, WalletClosedError `wallet-closed`
   */
  deposit(amount: Big): Wallet {
    if (amount.lte(0)) throw new InvalidAmountError('Deposit amount must be positive');
    this.#assertOpened();
    assertAmountOf(this.currency, amount);
    const balance = this.balance.plus(amount);
    assertAmountOf(this.currency, balance);
    return this.copy({ balance }, new WalletMoneyDepositedEvent(this.id, amount, balance));
  }

  /**
   * Takes money out of the wallet.
   *
   * @throws InvalidAmountError `invalid-amount`, WalletClosedError `wallet-closed`, InsufficientFundsError `insufficient-funds`
   */
  withdraw(amount: Big): Wallet {
    if (amount.lte(0)) throw new InvalidAmountError('Withdraw amount must be positive');
    this.#assertOpened();
    assertAmountOf(this.currency, amount);
    if (amount.gt(this.balance))
      throw new InsufficientFundsError(this.balance.toFixed(), amount.toFixed(), this.currency);
    const balance = this.balance.minus(amount);
    return this.copy({ balance }, new WalletMoneyWithdrawnEvent(this.id, amount, balance));
  }

  /**
   * Receives the money of a transfer, with an event of its own in addition to that of the deposit.
   *
   * @throws InvalidAmountError `invalid-amount`, WalletClosedError `wallet-closed`
   */
  receive(transferId: string, amount: Big): Wallet {
    return this.deposit(amount).emit(new WalletTransferReceivedEvent(this.id, transferId, amount));
  }

  /**
   * Takes back the money of a transfer that did not arrive. Never refused, not even by a wallet that has been closed since, or
   * has reached the limit of deposits.
   */
  takeBack(amount: Big): Wallet {
    const balance = this.balance.plus(amount);
    return this.copy({ balance }, new WalletMoneyDepositedEvent(this.id, amount, balance));
  }

  /**
   * Closes the wallet for good; it keeps its balance.
   *
   * @throws WalletClosedError `wallet-closed` when it is already closed
   */
  close(): Wallet {
    this.#assertOpened();
    return this.copy({ state: 'CLOSED' }, new WalletClosedEvent(this.id));
  }

  /**
   * Returns the wallet itself if it has one of the versions that a caller expects, or if none is expected.
   *
   * @throws UnexpectedVersionError `precondition-failed`
   */
  inVersion(expected: readonly number[] | undefined): this {
    if (expected === undefined || expected.includes(this.version)) return this;
    throw new UnexpectedVersionError(this.version);
  }

  #assertOpened(): void {
    if (this.state === 'CLOSED') throw new WalletClosedError(this.id.value);
  }
}

/** A wallet was opened. */
export class WalletCreatedEvent extends ModelEvent<Wallet> {
  static readonly payload = z.object({
    id: shardedIdCodec(Wallet),
    ownerId: z.string(),
    currency: z.string(),
    initialBalance: decimal,
  });
  readonly id: Id<Wallet>;
  readonly ownerId: string;
  readonly currency: string;
  readonly initialBalance: Big;

  constructor(id: Id<Wallet>, ownerId: string, currency: string, initialBalance: Big) {
    super(id.toString(), Wallet);
    this.id = id;
    this.ownerId = ownerId;
    this.currency = currency;
    this.initialBalance = initialBalance;
  }

  /** Converts early payloads, in which the id was missing, and the first balance was called `balance`. */
  static upcast(payload: object, { modelId }: { readonly modelId: string }): object {
    if (!('balance' in payload)) return payload;
    const { balance: initialBalance, ...others } = payload;
    return { id: modelId, ...others, initialBalance };
  }
}

/** Money was added to a wallet. */
export class WalletMoneyDepositedEvent extends ModelEvent<Wallet> {
  static readonly payload = z.object({ amount: decimal, newBalance: decimal });
  readonly amount: Big;
  readonly newBalance: Big;

  constructor(walletId: Id<Wallet>, amount: Big, newBalance: Big) {
    super(walletId.toString(), Wallet);
    this.amount = amount;
    this.newBalance = newBalance;
  }
}

/** Money was taken out of a wallet. */
export class WalletMoneyWithdrawnEvent extends ModelEvent<Wallet> {
  static readonly payload = z.object({ amount: decimal, newBalance: decimal });
  readonly amount: Big;
  readonly newBalance: Big;

  constructor(walletId: Id<Wallet>, amount: Big, newBalance: Big) {
    super(walletId.toString(), Wallet);
    this.amount = amount;
    this.newBalance = newBalance;
  }
}

/** A wallet has received the money of a transfer. The deposit has an event of its own. */
export class WalletTransferReceivedEvent extends ModelEvent<Wallet> {
  static readonly payload = z.object({ transferId: z.string(), amount: decimal });
  readonly transferId: string;
  readonly amount: Big;

  constructor(walletId: Id<Wallet>, transferId: string, amount: Big) {
    super(walletId.toString(), Wallet);
    this.transferId = transferId;
    this.amount = amount;
  }
}

/** A wallet was closed and never changes again. */
export class WalletClosedEvent extends ModelEvent<Wallet> {
  static readonly payload = z.object({});

  constructor(walletId: Id<Wallet>) {
    super(walletId.toString(), Wallet);
  }
}
