// @module-tag postgres
import { type DatabaseRegistry, Entity, type NewEntity, ShardedId } from '@framework/core';
import { firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { bigint, date, doublePrecision, inet, numeric, pgTable, timestamp } from 'drizzle-orm/pg-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';

import { PgRepository, entityColumns } from '../src/index.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

/** A contract whose rows other programs write, too. */
class Contract extends Entity<Contract, ShardedId<Contract>, 'OPEN'> {
  readonly since: Date | undefined;
  readonly day: string | undefined;
  readonly fee: string | undefined;
  readonly rate: number | undefined;
  readonly number: number | undefined;

  constructor(fields: NewEntity<Contract>) {
    super(fields);
    this.since = fields.since;
    this.day = fields.day;
    this.fee = fields.fee;
    this.rate = fields.rate;
    this.number = fields.number;
  }
}

const contracts = pgTable('contracts', {
  ...entityColumns(Contract),
  since: timestamp('since_date', { withTimezone: true }),
  day: date('day'),
  fee: numeric('fee'),
  rate: doublePrecision('rate'),
  number: bigint('number', { mode: 'number' }),
});

let database: TestDatabase;
let databases: DatabaseRegistry;
let repository: PgRepository<Contract, typeof contracts>;
beforeAll(async () => {
  database = await createTestDatabase();
  await query(
    database.url,
    `create table contracts (id uuid primary key, state text not null, version bigint not null,
       since_date timestamptz, day date, fee numeric, rate float8, number bigint)`,
  );
});
afterAll(() => database.drop());
beforeEach(async () => {
  databases = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await databases.ready();
  await query(database.url, 'delete from contracts');
  repository = new PgRepository({ model: Contract, table: contracts, databases });
});

describe('a row with an unreadable value', () => {
  test.each([
    ['since_date', 'infinity'],
    ['since_date', '0044-03-15 00:00:00+00 BC'],
    ['since_date', '10000-01-01 00:00:00+00'],
    ['day', '-infinity'],
    ['day', '0044-03-15 BC'],
    ['fee', 'NaN'],
    ['rate', 'NaN'],
    ['rate', '-Infinity'],
    ['number', '9007199254740993'],
  ])('such as %s = %s is reported by every read', async (column, value) => {
    const id = ShardedId.generate(Contract, firstShard);
    await query(
      database.url,
      `insert into contracts (id, state, version, ${column}) values ('${id.value}', 'OPEN', 1, '${value}')`,
    );
    const refusal = {
      code: 'unreadable-value',
      path: `contracts.${column}`,
      rowId: id.value,
      message: expect.stringContaining(value) as string,
    };
    await expect(repository.getById(id)).rejects.toMatchObject(refusal);
    await expect(repository.findAllByIds([id])).rejects.toMatchObject(refusal);
    await expect(repository.findAll()).rejects.toMatchObject(refusal);
    await expect(repository.findPage({ limit: 1 })).rejects.toMatchObject(refusal);
  });
});

test('a repository refuses a table with a column of a type that is not supported', () => {
  const table = pgTable('contracts', { ...entityColumns(Contract), address: inet('address') });
  const options = { model: Contract, table, databases, toModel: () => undefined, toRow: () => ({}) };
  expect(() => new PgRepository(options as never)).toThrow(
    /^Column contracts\.address has the type inet, which the framework does not store exactly: .* toRow and toModel/,
  );
});
