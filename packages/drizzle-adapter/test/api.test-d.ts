// Only type-checked: what must compile, and after each @ts-expect-error what must not.
import {
  type DatabaseRegistry,
  type Id,
  Model,
  type New,
  type Repository,
  type ShardedId,
} from '@framework/core';
import { integer, numeric, pgTable, text } from 'drizzle-orm/pg-core';

import { PgRepository, bigDecimal, modelColumns, shardedId, textId } from '../src/index.js';
import type { UnreadFields, UnwrittenColumns } from '../src/pg-repository.js';

declare const databases: DatabaseRegistry;

/** Any class of decimals that is constructed from digits. */
class Decimal {
  constructor(readonly digits: string) {}
  toFixed(): string {
    return this.digits;
  }
}

class Owner extends Model<Owner, Id<Owner>, 'KNOWN'> {
  declare protected readonly brand: 'Owner';
}

class Order extends Model<Order, ShardedId<Order>, 'OPEN' | 'PAID'> {
  readonly ownerId: Id<Owner>;
  readonly amount: Decimal;
  readonly note: string | undefined;
  readonly tip?: string;

  constructor(fields: New<Order>) {
    super(fields);
    this.ownerId = fields.ownerId;
    this.amount = fields.amount;
    this.note = fields.note;
    if (fields.tip !== undefined) this.tip = fields.tip;
  }

  pay(): Order {
    return this.copy({ state: 'PAID' });
  }
}

const columns = {
  ...modelColumns(Order),
  ownerId: textId('owner_id', Owner).notNull(),
  amount: bigDecimal('amount', Decimal, { precision: 20, scale: 2 }).notNull(),
  note: text('note'),
  tip: text('tip'),
};
const orders = pgTable('orders', columns);

export function tables(): void {
  const repository: Repository<Order> = new PgRepository({ model: Order, table: orders, databases });
  const wider = pgTable('orders', { ...columns, others: text('others') });
  void new PgRepository({ model: Order, table: wider, databases });
  const row: typeof orders.$inferSelect = {} as never;
  const id: ShardedId<Order> = row.id;
  const state: 'OPEN' | 'PAID' = row.state;
  const amount: Decimal = row.amount;

  const { note: _note, ...noteless } = columns;
  const unnoted = pgTable('orders', noteless);
  // @ts-expect-error a field without a column
  void new PgRepository({ model: Order, table: unnoted, databases });
  const requiring = pgTable('orders', { ...columns, more: text('more').notNull() });
  // @ts-expect-error a column that must have a value, and no field for it
  void new PgRepository({ model: Order, table: requiring, databases });
  void new PgRepository({
    model: Order,
    table: requiring,
    databases,
    toRow: ({ ...order }) => ({ ...order, more: 'more' }),
  });
  const texts = pgTable('orders', { ...columns, amount: numeric('amount').notNull() });
  // @ts-expect-error a column of another type
  void new PgRepository({ model: Order, table: texts, databases });
  void new PgRepository({
    model: Order,
    table: texts,
    databases,
    toModel: ({ note, tip: _tip, ...fields }) =>
      new Order({ ...fields, note: note ?? undefined, amount: new Decimal(fields.amount) }),
    toRow: ({ ...order }) => ({ ...order, amount: order.amount.toFixed() }),
  });
  const nullable = pgTable('orders', { ...columns, ownerId: textId('owner_id', Owner) });
  // @ts-expect-error a nullable column for a field that is always there
  void new PgRepository({ model: Order, table: nullable, databases });
  const foreign = pgTable('orders', { ...columns, id: shardedId('id', Owner).primaryKey() });
  // @ts-expect-error the ids of another model
  void new PgRepository({ model: Order, table: foreign, databases });
  // @ts-expect-error a class of decimals that is not constructed from digits
  bigDecimal('amount', Date, { precision: 20 });
  // @ts-expect-error a table without the columns of models
  void new PgRepository({ model: Order, table: pgTable('orders', { count: integer('count') }), databases });
  void [repository, id, state, amount];

  // What the error of the compiler names.
  exactly<UnreadFields<Order, typeof unnoted>, 'note'>(true);
  exactly<UnreadFields<Order, typeof texts>, 'amount'>(true);
  exactly<UnreadFields<Order, typeof nullable>, 'ownerId'>(true);
  exactly<UnreadFields<Order, typeof foreign>, 'id'>(true);
  exactly<UnreadFields<Order, typeof wider>, never>(true);
  exactly<UnwrittenColumns<Order, typeof requiring>, 'more'>(true);
  exactly<UnwrittenColumns<Order, typeof texts>, 'amount'>(true);
  exactly<UnwrittenColumns<Order, typeof wider>, never>(true);
}

declare function exactly<Given, Wanted>(
  same: [Given] extends [Wanted] ? ([Wanted] extends [Given] ? true : false) : false,
): void;
