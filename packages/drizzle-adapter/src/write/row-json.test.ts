import { sql } from 'drizzle-orm';
import {
  type PgColumnBuilderBase,
  bigint,
  integer,
  pgTable,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core';
import { expect, test } from 'vitest';

import type { RowShape } from './row-encoder.js';
import { RowJson } from './row-json.js';

const id = '018f3c00-0000-7abc-8000-000000000000';
/** A subscription as it was stored before its table had more columns. */
const stored = JSON.stringify({ id, state: 'OPEN', version: 3, seats: 2 });
const columns = {
  id: uuid('id').primaryKey(),
  state: text('state').notNull(),
  version: integer('version').notNull(),
  seats: integer('seats').notNull(),
};

function readWith(more: Readonly<Record<string, PgColumnBuilderBase>>): Record<string, unknown> {
  const table = pgTable('subscriptions', { ...columns, ...more });
  return new RowJson('Subscription', table, true).read(stored);
}

test('a stored model has the constant defaults of the columns that its table has gained since', () => {
  const read = readWith({
    plan: text('plan').notNull().default('basic'),
    quota: bigint('quota', { mode: 'bigint' }).notNull().default(5n),
    note: text('note'),
    label: text('label').default('none'),
  });
  expect(read).toEqual({
    id,
    state: 'OPEN',
    version: 3,
    seats: 2,
    plan: 'basic',
    quota: 5n,
    note: null,
    label: 'none',
  });
});

test('a stored null stays null, whatever the default', () => {
  const table = pgTable('subscriptions', { ...columns, label: text('label').default('none') });
  const withNull = JSON.stringify({ ...JSON.parse(stored), label: null });
  expect(new RowJson('Subscription', table, true).read(withNull)).toMatchObject({ label: null });
});

test.each([
  ['has none', text('owner').notNull()],
  ['is computed by the database', timestamp('owner').notNull().defaultNow()],
  ['is computed by the database and may be null', text('owner').default(sql`current_user`)],
  [
    'is computed by the process',
    text('owner')
      .notNull()
      .$defaultFn(() => 'me'),
  ],
])('a stored model is refused by column if a column that its table has gained %s', (_what, owner) => {
  expect(() => readWith({ owner })).toThrow(
    expect.objectContaining({ code: 'unstorable-value', path: 'Subscription.owner' }),
  );
});

test('a column that a row left to the database is not taken for one that its table has gained', () => {
  const table = pgTable('subscriptions', { ...columns, since: timestamp('since').notNull().defaultNow() });
  const json = new RowJson('Subscription', table, true);
  const shape = { fields: ['id', 'state', 'version', 'seats'] } as unknown as RowShape;
  expect(json.read(json.write({ shape, values: [id, 'OPEN', 1, 2] }))).toMatchObject({
    seats: 2,
    since: null,
  });
});
