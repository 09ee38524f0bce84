// @module-tag postgres
import {
  Action,
  ActionExecutor,
  type DatabaseRegistry,
  Entity,
  type Id,
  type Principal,
  ShardIdentifier,
  ShardedId,
  systemClock,
} from '@framework/core';
import { firstShard, otherDatabaseShard, sameDatabaseShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import {
  type PgColumnBuilderBase,
  bigint,
  boolean,
  date,
  doublePrecision,
  integer,
  numeric,
  pgEnum,
  pgTable,
  real,
  text,
  time,
  timestamp,
  varchar,
} from 'drizzle-orm/pg-core';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { PgRepository, entityColumns } from '../src/index.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

class Item extends Entity<Item, ShardedId<Item>, string> {}

const items = pgTable('items', entityColumns(Item));
const shards = [firstShard, otherDatabaseShard] as const;

let databases: readonly TestDatabase[];
beforeAll(async () => {
  databases = await Promise.all(shards.map(() => createTestDatabase()));
});
afterAll(() => Promise.all(databases.map((database) => database.drop())));

const urlOf = (shard: ShardIdentifier): string => databases[shard === otherDatabaseShard ? 1 : 0]!.url;

async function createTable(definition: string): Promise<void> {
  const create = `drop table if exists items; create table items (
    id uuid primary key, state text not null, version bigint not null${definition})`;
  for (const { url } of databases) await query(url, create);
}

async function insert(shard: ShardIdentifier, count: number, value?: string): Promise<readonly string[]> {
  const ids = Array.from({ length: count }, () => ShardedId.generate(Item, shard).value);
  const values = value === undefined ? '' : `, '${value}'`;
  await query(urlOf(shard), `insert into items select unnest($1::uuid[]), 'NEW', 1${values}`, [ids]);
  return ids;
}

/** Sorted neither by bytes nor by a locale. */
const letters = ['ä', 'Z', 'b', '_', 'B', 'a', '\u{1f600}', 'ﬀ', '-b', 'é'] as const;

describe('pages by a column', () => {
  test.each<[type: string, column: PgColumnBuilderBase, values: readonly string[]]>([
    ['numeric', numeric('value').notNull(), ['-5', '1.5', '1.50', `1${'0'.repeat(131_071)}`]],
    ['real', real('value').notNull(), ['-3.4028235e38', '-1e-45', '0.1', '0.10000001', '3.4028235e38']],
    ['float8', doublePrecision('value').notNull(), ['-1e300', '-0', '0', '5e-324', '1e300']],
    ['date', date('value').notNull(), ['0001-01-01', '2026-01-01', '9999-12-31']],
    ['time', time('value').notNull(), ['00:00:00', '07:05:00', '07:05:00.000001', '24:00:00']],
    ['boolean', boolean('value').notNull(), ['false', 'true']],
    [
      'timestamp',
      timestamp('value', { mode: 'string' }).notNull(),
      ['0001-01-01', '2026-01-01', '2026-01-01 00:00:00.000001', '2026-01-01 00:00:00.1'],
    ],
    [
      'timestamptz',
      timestamp('value', { withTimezone: true }).notNull(),
      ['0001-01-01', '2026-01-01', '2026-01-01 00:00:00.000001', '9999-12-31 23:59:59.999999'],
    ],
  ])('of type %s continue after any value, over several databases', async (type, column, values) => {
    await createTable(`, value ${type} not null`);
    const { paged, sorted } = await readAndSort(column, type, values);
    expect(paged).toEqual(sorted);
  });

  test.each<[type: string, column: PgColumnBuilderBase, definition: string]>([
    ['text', text('value').notNull(), 'text collate "en-x-icu"'],
    ['varchar', varchar('value', { length: 9 }).notNull(), 'varchar(9) collate "en-x-icu"'],
    ['varchar without length', varchar('value').notNull(), 'varchar collate "en-x-icu"'],
    ['enum', pgEnum('letter', letters)('value').notNull(), 'letter'],
  ])('of type %s have each row once, whatever the locale of the column is', async (_, column, definition) => {
    for (const { url } of databases)
      await query(
        url,
        `drop type if exists letter cascade; create type letter as enum ('${letters.join("','")}')`,
      );
    await createTable(`, value ${definition} not null`);
    const { paged, sorted } = await readAndSort(column, 'text', letters, 'value collate "C"');
    expect(paged).toEqual(sorted);
  });
});

/**
 * Inserts rows with the values into both databases. Returns the ids on pages of one row, and as a database sorts all
 * rows at once, both ascending and descending.
 */
async function readAndSort(
  column: PgColumnBuilderBase,
  type: string,
  values: readonly string[],
  order = 'value',
): Promise<Readonly<Record<'paged' | 'sorted', readonly (readonly string[])[]>>> {
  const registry = openRegistry(
    shards.map(({ group, member }) => ({ group, member, url: urlOf(ShardIdentifier.of(group, member)) })),
    {},
  );
  await registry.ready();
  const table = pgTable('items', { ...entityColumns(Item), value: column });
  const options = { model: Item, table, databases: registry, toModel: itemOf, toRow: () => ({}) };
  const repository = new PgRepository<Item, typeof items>(options as never);
  for (const value of values) for (const shard of shards) await insert(shard, 2, value);
  const stored = await Promise.all(
    shards.map((shard) =>
      query<{ id: string; value: string }>(urlOf(shard), 'select id, value::text from items'),
    ),
  );
  const rows = stored.flat().map(({ id, value }) => `('${id}'::uuid, '${value}'::${type})`);
  const paged: (readonly string[])[] = [];
  const sorted: (readonly string[])[] = [];
  for (const [direction, keyword] of [
    ['ascending', 'asc'],
    ['descending', 'desc'],
  ] as const) {
    const all = await query<{ id: string }>(
      urlOf(firstShard),
      `select id from (values ${rows.join()}) as t(id, value) order by ${order} ${keyword}, id ${keyword}`,
    );
    sorted.push(all.map(({ id }) => id));
    paged.push(await pagesOf(repository, { limit: 1, orderBy: 'value' as never, direction }));
  }
  return { paged, sorted };
}

async function open(...members: readonly { readonly shard: ShardIdentifier; readonly url: string }[]) {
  const settings = { 'acquisition-timeout-ms': 1_000 };
  const own = members.map(({ shard: { group, member }, url }) => ({ group, member, url, settings }));
  const registry = openRegistry(own, { onWarning: () => undefined });
  await registry.readyOn(firstShard);
  return { registry, repository: new PgRepository({ model: Item, table: items, databases: registry }) };
}

test.each<[type: string, column: PgColumnBuilderBase, values: readonly string[]]>([
  ['integer', integer('value').notNull(), ['', '1.5', '2147483648', 'x']],
  ['bigint', bigint('value', { mode: 'bigint' }).notNull(), ['9223372036854775808', '1e2']],
  ['real', real('value').notNull(), ['0b11', '1e-50', '1e39', '']],
  ['float8', doublePrecision('value').notNull(), ['0o7', '1\ufeff', '1e-400', '1e400', '']],
  ['numeric', numeric('value').notNull(), ['1'.repeat(131_073), '-', '']],
  ['boolean', boolean('value').notNull(), ['maybe', '']],
  ['date', date('value').notNull(), ['4714-11-23 BC', '5874898-01-01', '2026-02-29', '']],
  [
    'timestamp',
    timestamp('value', { mode: 'string' }).notNull(),
    ['4714-11-23 00:00:00 BC', '294277-01-01 00:00:00'],
  ],
])('a cursor with a text that no %s has is invalid', async (type, column, values) => {
  await createTable(`, value ${type} not null`);
  const registry = openRegistry([{ group: 0, member: 0, url: urlOf(firstShard) }], {});
  await registry.ready();
  const table = pgTable('items', { ...entityColumns(Item), value: column });
  const options = { model: Item, table, databases: registry, toModel: itemOf, toRow: () => ({}) };
  const repository = new PgRepository<Item, typeof items>(options as never);
  const id = ShardedId.generate(Item, firstShard).value;
  for (const value of values) {
    const after = Buffer.from(JSON.stringify(['value', value, id])).toString('base64url');
    const page = repository.findPage({ limit: 1, orderBy: 'value' as never, after });
    await expect(page).rejects.toMatchObject({ code: 'invalid-cursor' });
  }
});

describe('a page of one shard', () => {
  beforeEach(() => createTable(''));

  test('leaves an action that reads it independent of other shards', async () => {
    const { registry, repository } = await open(
      { shard: firstShard, url: urlOf(firstShard) },
      { shard: otherDatabaseShard, url: 'postgres://nobody@127.0.0.1:1/down' },
    );
    const refusal = new Error('the rules refuse it');
    class RefusingAction extends Action<{ readonly why: string }> {
      protected async perform(): Promise<void> {
        await repository.findPage({ limit: 1, shard: firstShard });
        throw refusal;
      }
    }
    const executor = executorOf(registry, repository, new RefusingAction(systemClock));
    const named = { id: ShardedId.generate(Item, firstShard), why: 'test' };
    // With a key, every shard that was read is asked whether the request was committed before.
    const executed = executor.execute(tester, RefusingAction, named, { idempotencyKey: 'key-1' });
    await expect(executed).rejects.toBe(refusal);
  });

  test("is read in the shard's own transaction, even inside one on another shard of the database", async () => {
    // The databases of the other tests hold one shard each.
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const { url } = database;
    const { registry, repository } = await open(
      { shard: firstShard, url },
      { shard: sameDatabaseShard, url },
    );
    await query(
      url,
      'create table items (id uuid primary key, state text not null, version bigint not null)',
    );
    const { id } = new Item({ id: ShardedId.generate(Item, sameDatabaseShard), state: 'NEW', version: 1 });
    const page = await registry.transactionManager(firstShard).inTransaction(() =>
      registry.transactionManager(sameDatabaseShard).inTransaction(async () => {
        await repository.db(sameDatabaseShard).insert(items).values({ id, state: 'NEW', version: 1 });
        return repository.findPage({ limit: 1, shard: sameDatabaseShard });
      }),
    );
    expect(page.items).toMatchObject([{ id }]);
  });

  test('skips the rows of another shard in few statements', async () => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const { url } = database;
    const { repository } = await open({ shard: firstShard, url }, { shard: sameDatabaseShard, url });
    await query(
      url,
      'create table items (id uuid primary key, state text not null, version bigint not null)',
    );
    const ids = Array.from({ length: 5_000 }, () => ShardedId.generate(Item, sameDatabaseShard).value);
    const own = ShardedId.generate(Item, firstShard).value;
    await query(url, `insert into items select unnest($1::uuid[]), 'NEW', 1`, [[...ids, own]]);
    const sent = vi.spyOn(pg.Client.prototype, 'query');
    onTestFinished(() => sent.mockRestore());
    expect(await pagesOf(repository, { limit: 1, shard: firstShard })).toEqual([own]);
    const selects = sent.mock.calls.filter(([sql]) =>
      /from "items"/.test((sql as { text?: string }).text ?? ''),
    );
    expect(selects.length).toBeLessThan(20);
  });
});

test('a table whose ids are ordered differently from their texts is refused', () => {
  const registry = openRegistry([{ group: 0, member: 0, url: urlOf(firstShard) }]);
  class Numbered extends Entity<Numbered, Id<Numbered>, string> {}
  const table = pgTable('numbered', {
    id: bigint('id', { mode: 'bigint' }).primaryKey(),
    state: text('state').notNull(),
    version: bigint('version', { mode: 'number' }).notNull(),
  });
  const options = {
    model: Numbered,
    table,
    databases: registry,
    toModel: () => undefined,
    toRow: () => ({}),
  };
  expect(() => new PgRepository(options as never)).toThrow(
    'Table numbered has ids of type bigint: declare a uuid or a text',
  );
});

const tester: Principal = { name: 'tester' };

function executorOf(
  registry: DatabaseRegistry,
  repository: PgRepository<Item, typeof items>,
  action: Action<never, unknown>,
): ActionExecutor {
  return new ActionExecutor({
    namespace: 'adapter.test',
    databases: registry,
    repositories: [repository],
    actions: [action],
  });
}

function itemOf({ id, state, version }: typeof items.$inferSelect): Item {
  return new Item({ id, state, version });
}

/** The ids on all pages, one after the other. */
async function pagesOf(
  repository: PgRepository<Item, typeof items>,
  request: Parameters<PgRepository<Item, typeof items>['findPage']>[0],
): Promise<readonly string[]> {
  const found: string[] = [];
  let after: string | undefined;
  do {
    const page = await repository.findPage({ ...request, after });
    found.push(...page.items.map(({ id }) => id.value));
    after = page.next;
  } while (after !== undefined);
  return found;
}
