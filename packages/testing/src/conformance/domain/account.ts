import { type Id, Model, ModelEvent, type New, ShardedId, type ShardIdentifier } from '@framework/core';
import * as z from 'zod';
import { decimal, sum } from './decimal-text.js';

/** `DELETED` rows must never be read. */
export type AccountState = 'OPENED' | 'DELETED';

/** What JSON can say. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

/** The suite's model with events: one field of every kind whose round trip must be exact. */
export class Account extends Model<Account, ShardedId<Account>, AccountState> {
  /** Text, indexed; the condition of `findByOwner`. */
  readonly owner: string;
  /** A decimal of up to 20 digits before the point and exactly 18 after it, as text. */
  readonly balance: string;
  /** A 64 bit integer. */
  readonly quota: bigint;
  /** A double. */
  readonly score: number;
  /** An instant with milliseconds. */
  readonly dueDate: Date;
  /** Text without limit, or null. */
  readonly note: string | null;
  /** JSON, not null in the database. */
  readonly settings: Json;

  constructor(fields: New<Account>) {
    super(fields);
    this.owner = fields.owner;
    this.balance = fields.balance;
    this.quota = fields.quota;
    this.score = fields.score;
    this.dueDate = fields.dueDate;
    this.note = fields.note;
    this.settings = fields.settings;
  }

  /** A new account on a shard, with its event attached. */
  static open(shard: ShardIdentifier, now: Date, fields: Partial<AccountFields> = {}): Account {
    const account = Account.blank(shard, now, fields);
    return account.emit(new AccountOpenedEvent(account.id, account.owner, account.balance));
  }

  /** A new account on a shard, without any event. */
  static blank(shard: ShardIdentifier, now: Date, fields: Partial<AccountFields> = {}): Account {
    const id = ShardedId.generate(Account, shard);
    return new Account({ ...defaultFields, ...fields, id, state: 'OPENED', createdDate: now });
  }

  /** Adds to the balance; each call attaches one event. */
  credit(amount: string): Account {
    const balance = sum(this.balance, amount);
    return this.copy({ balance }, new AccountCreditedEvent(this.id, decimal(amount), balance));
  }

  /** Sets the note. */
  annotate(note: string | null): Account {
    return this.copy({ note }, new AccountNotedEvent(this.id, note));
  }

  /** Changes fields without any event. */
  adjust(fields: Partial<AccountFields>): Account {
    return this.copy(fields);
  }

  /** The account with any fields changed, also those that the framework sets, for what no real change leads to. */
  variant(fields: Partial<New<Account>>): Account {
    return new Account(Object.assign({}, this, fields));
  }

  /** Takes the account out of every read. */
  delete(): Account {
    return this.copy({ state: 'DELETED' }, new AccountDeletedEvent(this.id));
  }
}

/** An account exists. */
export class AccountOpenedEvent extends ModelEvent<Account> {
  static readonly payload = z.object({ owner: z.string(), balance: z.string() });

  constructor(
    accountId: Id<Account>,
    readonly owner: string,
    readonly balance: string,
  ) {
    super(accountId.toString(), Account);
  }
}

/** The balance grew, or shrank when the amount is negative. */
export class AccountCreditedEvent extends ModelEvent<Account> {
  static readonly payload = z.object({ amount: z.string(), newBalance: z.string() });

  constructor(
    accountId: Id<Account>,
    readonly amount: string,
    readonly newBalance: string,
  ) {
    super(accountId.toString(), Account);
  }
}

/** The note was set or taken away. */
export class AccountNotedEvent extends ModelEvent<Account> {
  static readonly payload = z.object({ note: z.string().nullable() });

  constructor(
    accountId: Id<Account>,
    readonly note: string | null,
  ) {
    super(accountId.toString(), Account);
  }
}

/** The account is no longer to be read; the event has no fields of its own. */
export class AccountDeletedEvent extends ModelEvent<Account> {
  static readonly payload = z.object({});

  constructor(accountId: Id<Account>) {
    super(accountId.toString(), Account);
  }
}

/** The account's own fields. */
export type AccountFields = Pick<
  Account,
  'owner' | 'balance' | 'quota' | 'score' | 'dueDate' | 'note' | 'settings'
>;

const defaultFields: AccountFields = {
  owner: 'nobody',
  balance: decimal('0'),
  quota: 0n,
  score: 0,
  dueDate: new Date('2026-06-01T08:30:00.250Z'),
  note: null,
  settings: {},
};
