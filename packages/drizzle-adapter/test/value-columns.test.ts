// @module-tag postgres
import {
  Action,
  ActionExecutor,
  type DatabaseRegistry,
  Entity,
  Id,
  type NewEntity,
  ShardedId,
  systemClock,
} from '@framework/core';
import { Account, firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { eq, getTableColumns, sql } from 'drizzle-orm';
import { type PgColumn, numeric, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PgRepository, bigDecimal, entityColumns, shardedId, textId } from '../src/index.js';
import { RowDecoder } from '../src/column/row-decoder.js';
import type { Row } from '../src/write/row-encoder.js';
import { openRegistry } from './fixtures/open-registry.js';
import { persist, persistInGroup } from './fixtures/persist.js';
import { query } from './fixtures/query.js';
import { PgSampleRepository, Sample, sampleTable } from './fixtures/sample.js';

/** An exact decimal, constructed from digits and written as digits. */
class Decimal {
  readonly digits: string;

  constructor(digits: string) {
    this.digits = digits.includes('.') ? digits.replace(/\.?0+$/, '') : digits;
  }

  toFixed(): string {
    return this.digits;
  }
}

class Shop extends Entity<Shop, Id<Shop>, 'KNOWN'> {}

class Bill extends Entity<Bill, ShardedId<Bill>, 'OPEN' | 'PAID'> {
  readonly accountId: ShardedId<Account>;
  readonly shopId: Id<Shop>;
  readonly amount: Decimal;
  readonly tip: Decimal | undefined;
  readonly note: string | undefined;

  constructor(fields: NewEntity<Bill>) {
    super(fields);
    this.accountId = fields.accountId;
    this.shopId = fields.shopId;
    this.amount = fields.amount;
    this.tip = fields.tip;
    this.note = fields.note;
  }

  static of(fields: Partial<NewEntity<Bill>> = {}): Bill {
    return new Bill({
      id: ShardedId.generate(Bill, firstShard),
      state: 'OPEN',
      version: 1,
      accountId: ShardedId.generate(Account, firstShard),
      shopId: Id.of(Shop, 'shop no. 1'),
      amount: new Decimal('25.5'),
      tip: undefined,
      note: undefined,
      ...fields,
    });
  }

  with(fields: Partial<NewEntity<Bill>>): Bill {
    return new Bill(Object.assign({}, this, fields));
  }

  pay(): Bill {
    return this.copy({ state: 'PAID' });
  }
}

const bills = pgTable('bills', {
  ...entityColumns(Bill),
  accountId: shardedId('account_id', Account).notNull(),
  shopId: textId('shop_id', Shop).notNull(),
  amount: bigDecimal('amount', Decimal, { precision: 12, scale: 4 }).notNull(),
  tip: bigDecimal('tip', Decimal, { precision: 4 }),
  note: text('note'),
});

const statements = `create table bills (
  id uuid primary key, state text not null, version bigint not null, account_id uuid not null, shop_id text not null,
  amount numeric(12, 4) not null, tip numeric(4), note text)`;

let database: TestDatabase;
let databases: DatabaseRegistry;
let repository: PgRepository<Bill, typeof bills>;
beforeAll(async () => {
  database = await createTestDatabase();
  await query(database.url, statements);
});
afterAll(() => database.drop());
beforeEach(async () => {
  databases = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await databases.ready();
  await query(database.url, 'delete from bills');
  repository = new PgRepository({ model: Bill, table: bills, databases });
});

test('a value column has the SQL type of its Drizzle column, so migrations stay the same', () => {
  const plain = pgTable('bills', {
    id: uuid('id').primaryKey(),
    accountId: uuid('account_id').notNull(),
    shopId: text('shop_id').notNull(),
    amount: numeric('amount', { precision: 12, scale: 4 }).notNull(),
    tip: numeric('tip', { precision: 4 }),
  });
  const own = getTableColumns(bills) as Record<string, PgColumn>;
  for (const [key, column] of Object.entries(getTableColumns(plain) as Record<string, PgColumn>)) {
    const { name, notNull, primary, hasDefault } = column;
    expect(own[key]).toMatchObject({ name, notNull, primary, hasDefault });
    expect(own[key]?.getSQLType()).toBe(column.getSQLType());
  }
});

describe.each([
  ['', persist],
  [', written in a group,', persistInGroup],
])('a model whose fields are the columns of its table%s', (_how, write) => {
  test('is read as it was written, with undefined for null', async () => {
    const bill = Bill.of();
    await write(databases, repository, bill);
    const read = await repository.getById(bill.id);
    expect(read).toEqual(bill);
    expect(read.id).toBeInstanceOf(ShardedId);
    expect(read.shopId).toBeInstanceOf(Id);
    expect(read.amount).toBeInstanceOf(Decimal);
    expect(await repository.findAllByIds([bill.id])).toEqual([bill]);
    expect(await repository.findAll()).toEqual([bill]);
    const next = bill.with({ version: 2, tip: new Decimal('3'), note: 'thanks', state: 'PAID' });
    await write(databases, repository, next);
    expect(await repository.findById(bill.id)).toEqual(next);
  });
});

test('a staged row reads as the database will return it', () => {
  const bill = Bill.of({ tip: new Decimal('0') });
  expect(repository.decode(repository.encode(bill), firstShard)).toBeUndefined();
  // The query that reads staged rows first asks the database about the table, so this test decodes only the row.
  const { shape, values } = repository.encode(bill) as Row;
  expect(shape.isWhole).toBe(true);
  expect(new RowDecoder(bills).decode(values)).toEqual(Object.assign({}, bill, { note: null }));
});

test('conditions accept the values of a column', async () => {
  const bill = Bill.of({ amount: new Decimal('0.0001') });
  await persist(databases, repository, bill);
  await persist(databases, repository, Bill.of());
  expect(await repository.findAllWhere(eq(bills.accountId, bill.accountId))).toEqual([bill]);
  expect(await repository.findAllWhere(eq(bills.amount, new Decimal('0.0001')))).toEqual([bill]);
});

test('pages are ordered by decimals and ids, whatever their digits are', async () => {
  const amounts = ['-3', '25.5', '9', '100', '0.0001', '9', '-20.25', '0', '9'];
  const stored = amounts.map((digits) => Bill.of({ amount: new Decimal(digits) }));
  for (const bill of stored) await persist(databases, repository, bill);
  const found: Bill[] = [];
  let after: string | undefined;
  do {
    const page = await repository.findPage({ limit: 2, orderBy: 'amount', after });
    found.push(...page.items);
    after = page.next;
  } while (after !== undefined);
  const sorted = stored.toSorted((one, other) => Number(one.amount.digits) - Number(other.amount.digits));
  expect(found).toEqual(sorted);
});

test('pages lose no row whose instants differ by less than a Date can express', async () => {
  await query(
    database.url,
    'create table moments (id uuid primary key, state text not null, version bigint not null, moment timestamptz not null)',
  );
  class Moment extends Entity<Moment, ShardedId<Moment>, 'OPEN' | 'PAID'> {
    readonly moment: Date;

    constructor(fields: NewEntity<Moment>) {
      super(fields);
      this.moment = fields.moment;
    }
  }
  const table = pgTable('moments', {
    ...entityColumns(Moment),
    moment: timestamp('moment', { withTimezone: true }).notNull(),
  });
  const moments = new PgRepository({ model: Moment, table, databases });
  const ids = Array.from({ length: 5 }, () => ShardedId.generate(Bill, firstShard).value);
  for (const [index, id] of ids.entries()) {
    // The later the id, the earlier the instant.
    const instant = `2026-01-01T00:00:00.00000${9 - index}Z`;
    await query(database.url, `insert into moments values ('${id}', 'OPEN', 1, '${instant}')`);
  }
  const found: string[] = [];
  let after: string | undefined;
  do {
    const page = await moments.findPage({ limit: 2, orderBy: 'moment', after });
    found.push(...page.items.map(({ id }) => id.value));
    after = page.next;
  } while (after !== undefined);
  expect(found).toEqual(ids.toReversed());
});

describe('a column refuses a value', () => {
  test.each<[string, Record<string, unknown>, string]>([
    ['a text instead of a decimal', { amount: '25.5' }, 'Bill.amount'],
    ['a decimal that the database would round', { amount: new Decimal('0.00001') }, 'Bill.amount'],
    ['a decimal that is too large', { tip: new Decimal('10000') }, 'Bill.tip'],
    ['a decimal that is not a number', { amount: new Decimal('NaN') }, 'Bill.amount'],
    ['a text instead of an id', { shopId: 'shop no. 1' }, 'Bill.shopId'],
    ['an id of another system', { accountId: Id.of(Account, 'account 1') }, 'Bill.accountId'],
    ['nothing', { amount: undefined }, 'Bill.amount'],
  ])('when it is %s', (_what, fields, path) => {
    const bill = Bill.of(fields);
    expect(() => repository.encode(bill)).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path }) as Error,
    );
  });
});

test('a field without a column is refused by name', () => {
  class Noted extends Bill {
    readonly colour = 'red';
  }
  const noted = new PgRepository({ model: Noted, table: bills as never, databases } as never) as PgRepository<
    Noted,
    typeof bills
  >;
  expect(() => noted.encode(new Noted(Bill.of()))).toThrow(
    expect.objectContaining({
      code: 'invariant-violation',
      message: expect.stringContaining('Noted.colour') as string,
    }) as Error,
  );
});

test('an action changes a model of value columns, one execution at a time and in groups', async () => {
  class PayAction extends Action<{ readonly id: ShardedId<Bill> }, Bill> {
    protected async perform(_principal: object, { id }: { readonly id: ShardedId<Bill> }): Promise<Bill> {
      return this.plan().update((await repository.getById(id)).pay());
    }
  }
  const executor = new ActionExecutor({
    namespace: 'values',
    databases,
    repositories: [repository],
    actions: [new PayAction(systemClock)],
  });
  for (const groupCommit of [false, true]) {
    const bill = Bill.of();
    await persist(databases, repository, bill);
    const paid = await executor.execute({ name: 'tester' }, PayAction, { id: bill.id }, { groupCommit });
    expect(paid).toEqual(bill.with({ state: 'PAID', version: 2 }));
    expect(await repository.getById(bill.id)).toEqual(paid);
  }
});

describe('a model stored as JSON beside an idempotency key', () => {
  test('is read as it was written', () => {
    const codec = repository.jsonCodec();
    for (const fields of [
      {},
      { tip: new Decimal('3'), note: 'thanks', state: 'PAID' as const, version: 7 },
    ]) {
      const bill = Bill.of(fields);
      expect(codec.decode(codec.encode(bill))).toEqual(bill);
    }
  });

  test('has each field under its name, as plain values', () => {
    const bill = Bill.of({ tip: new Decimal('3') });
    expect(JSON.parse(repository.jsonCodec().encode(bill))).toEqual({
      id: bill.id.value,
      state: 'OPEN',
      version: 1,
      accountId: bill.accountId.value,
      shopId: 'shop no. 1',
      amount: '25.5000',
      tip: '3',
      note: null,
    });
  });

  test('is read when a field that may be undefined is absent', () => {
    const { id, accountId } = Bill.of();
    const stored = `{"id":"${id.value}","state":"OPEN","version":1,"accountId":"${accountId.value}","shopId":"shop no. 1","amount":"25.5"}`;
    expect(repository.jsonCodec().decode(stored)).toEqual(Bill.of({ id, accountId }));
  });

  test('is refused when one of its values would not be restored', () => {
    const bill = Bill.of({ amount: new Decimal('0.00001') });
    expect(() => repository.jsonCodec().encode(bill)).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'Bill.amount' }) as Error,
    );
  });

  test('holds values of every supported type', () => {
    const samples = new PgSampleRepository(databases);
    const values = {
      day: new Date('2026-03-04'),
      dayText: '2026-03-04',
      at: '07:05:00.25',
      moment: new Date('2026-03-04T07:05:00.250Z'),
      momentText: '2026-03-04 07:05:00.25+00',
      local: new Date('0001-01-01T00:00:00.001Z'),
      mood: 'wild',
      isOpen: true,
      amount: '1.50',
      count: -3,
      quota: 2n ** 62n,
      score: 0.1,
      weight: 0.5,
      doc: { a: ['12', null] },
      content: Buffer.from([0, 92, 255]),
      counts: [1, null],
      data: '12',
      notes: ['a', null, 'null', '{"b"}'],
      quotas: [-1n],
      flags: [true, false],
    };
    const codec = samples.jsonCodec();
    const { id: _id, state: _state, version: _version, ...columns } = getTableColumns(sampleTable);
    const all = { ...Object.fromEntries(Object.keys(columns).map((key) => [key, null])), ...values };
    expect(codec.decode(codec.encode(Sample.of(all))).values).toEqual(all);
  });

  test('is refused by name for a column that only the database fills in', () => {
    const table = pgTable('bills', {
      ...entityColumns(Bill),
      total: text('total').generatedAlwaysAs(sql`'none'`),
    });
    const options = { model: Bill, table, databases, toModel: () => Bill.of(), toRow: () => ({}) };
    const incomplete = new PgRepository<Bill, typeof bills>(options as never);
    expect(() => incomplete.jsonCodec()).toThrow(
      expect.objectContaining({
        code: 'invariant-violation',
        message: expect.stringContaining('total') as string,
      }) as Error,
    );
  });

  test('is refused by name for a column that the database fills', () => {
    const table = pgTable('bills', { ...entityColumns(Bill), shelf: text('shelf') });
    const leaving = new PgRepository({
      model: Bill,
      table,
      databases,
      toModel: ({ id }) => Bill.of({ id }),
      toRow: ({ id, state, version }) => ({ id, state, version }),
    });
    expect(() => leaving.jsonCodec().encode(Bill.of())).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'Bill.shelf' }) as Error,
    );
  });
});
