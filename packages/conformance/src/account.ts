import {
  Entity,
  type Id,
  Model,
  ModelEvent,
  type New,
  type NewEntity,
  type ShardIdentifier,
  ShardedId,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';

const fractionDigits = 18;
const unit = 10n ** BigInt(fractionDigits);

/** The states of an account; no read may return an account in the state `DELETED`. */
export type AccountState = 'OPENED' | 'DELETED';

/** Any JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

/** The suite's model with events. It has one field for every kind of value that must be read back exactly. */
export class Account extends Model<Account, ShardedId<Account>, AccountState> {
  /** Text, indexed; the condition of `findByOwner`. */
  readonly owner: string;
  /** A decimal of up to 20 digits before the decimal point and exactly 18 after it, as text. */
  readonly balance: string;
  /** A 64-bit integer. */
  readonly quota: bigint;
  /** A double. */
  readonly score: number;
  /** An instant, to the millisecond. */
  readonly dueDate: Date;
  /** Text of any length, or null. */
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

  /** Adds to the balance, with an event for each call. */
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

  /** The account with any fields changed, even those that the framework sets, for changes that no method makes. */
  variant(fields: Partial<New<Account>>): Account {
    return new Account(Object.assign({}, this, fields));
  }

  /** Deletes the account, so that reads no longer return it. */
  delete(): Account {
    return this.copy({ state: 'DELETED' }, new AccountDeletedEvent(this.id));
  }
}

/** An account was opened. */
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

/** The balance grew, or shrank if the amount is negative. */
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

/** The note was set or removed. */
export class AccountNotedEvent extends ModelEvent<Account> {
  static readonly payload = z.object({ note: z.string().nullable() });

  constructor(
    accountId: Id<Account>,
    readonly note: string | null,
  ) {
    super(accountId.toString(), Account);
  }
}

/** The account was deleted; the event has no fields of its own. */
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

const instant = z.codec(z.iso.datetime(), z.date(), {
  decode: (text) => new Date(text),
  encode: (date) => date.toISOString(),
});

const accountFields = z.object({
  id: shardedIdCodec(Account),
  state: z.enum(['OPENED', 'DELETED']),
  version: z.int(),
  createdDate: instant,
  updatedDate: instant,
  owner: z.string(),
  balance: z.string(),
  quota: z.codec(z.string(), z.bigint(), {
    decode: (text) => BigInt(text),
    encode: (value) => String(value),
  }),
  score: z.number(),
  dueDate: instant,
  note: z.string().nullable(),
  settings: z.custom<Json>(),
});

/** The schema of an account as the result of an action. */
export const accountCodec: z.ZodType<Account> = z.codec(accountFields, z.instanceof(Account), {
  decode: (read) => new Account({ ...read, id: ShardedId.of(Account, read.id.value) }),
  encode: (account) => account,
});

/**
 * Writes a decimal in the form in which the suite compares decimals: with 18 digits after the decimal point.
 *
 * @param text such as `25.5` or `-3`
 */
export function decimal(text: string): string {
  return written(scaled(text));
}

/** Adds two decimals exactly. */
export function sum(one: string, other: string): string {
  return written(scaled(one) + scaled(other));
}

function scaled(text: string): bigint {
  const [whole = '', fraction = ''] = text.split('.');
  return BigInt(whole + fraction.padEnd(fractionDigits, '0'));
}

function written(value: bigint): string {
  const size = value < 0n ? -value : value;
  const fraction = (size % unit).toString().padStart(fractionDigits, '0');
  return `${value < 0n ? '-' : ''}${size / unit}.${fraction}`;
}

/** The suite's entity: it has a version, but no dates and no events. */
export class Tag extends Entity<Tag, ShardedId<Tag>, 'ACTIVE' | 'DELETED'> {
  /** A text, the only field of its own. */
  readonly label: string;

  constructor(fields: NewEntity<Tag>) {
    super(fields);
    this.label = fields.label;
  }

  /** A new tag on a shard. */
  static of(shard: ShardIdentifier, label: string): Tag {
    return new Tag({ id: ShardedId.generate(Tag, shard), state: 'ACTIVE', label });
  }

  /** Changes the label. */
  rename(label: string): Tag {
    return this.copy({ label });
  }

  /** Deletes the tag, so that reads no longer return it. */
  delete(): Tag {
    return this.copy({ state: 'DELETED' });
  }
}
