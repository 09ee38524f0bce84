// @module-tag postgres
import { type DatabaseRegistry, FrameworkError, systemClock } from '@framework/core';
import type { ChangeSet, GroupOutcome } from '@framework/core/adapter';
import { Account, Tag, decimal, firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { pgEnum, pgTable, varchar } from 'drizzle-orm/pg-core';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { PgRepository, entityColumns } from '../src/index.js';
import { Gadget, PgGadgetRepository, gadgetStatements } from './fixtures/gadget.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { changeSetOf, persist } from './fixtures/persist.js';
import { PgAccountRepository } from './fixtures/pg-account-repository.js';
import { PgTagRepository } from './fixtures/pg-tag-repository.js';
import { query } from './fixtures/query.js';

const labelledTags = pgTable('tags', {
  ...entityColumns(Tag),
  label: pgEnum('tag_label', ['first', 'second', 'third'])('label').notNull(),
});

/** Tags with labels of an enum. */
class PgLabelledTagRepository extends PgRepository<Tag, typeof labelledTags> {
  constructor(databases: DatabaseRegistry) {
    super({
      model: Tag,
      table: labelledTags,
      databases,
      toRow: ({ label, ...fields }) => ({ ...fields, label: label as 'first' }),
    });
  }
}

const shortTags = pgTable('tags', {
  ...entityColumns(Tag),
  label: varchar('label', { length: 9 }).notNull(),
});

/** Tags with labels of limited length. */
class PgShortTagRepository extends PgRepository<Tag, typeof shortTags> {
  constructor(databases: DatabaseRegistry) {
    super({ model: Tag, table: shortTags, databases });
  }
}

let database: TestDatabase;
let registry: DatabaseRegistry;
let tags: PgTagRepository;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());
beforeEach(async () => {
  registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
  tags = new PgTagRepository(registry);
  await query(database.url, 'delete from tags');
});

/** Alters the database until the test is over. */
async function alter(statements: string, undo: string): Promise<void> {
  await query(database.url, statements);
  onTestFinished(() => query(database.url, undo).then(() => undefined));
}

/** The outcomes of two change sets of one group that give a new tag two labels in turn. */
async function renamedTwice(): Promise<readonly GroupOutcome[]> {
  const tag = tagOf(Tag.of(firstShard, 'first'), 1);
  await persist(registry, tags, tag);
  const group = [tagOf(tag.rename('second'), 2), tagOf(tag.rename('third'), 3)];
  return registry.transactionManager(firstShard).persistAll(group.map((each) => changeSetOf(tags, each)));
}

describe('a row changed by two plans of a group', () => {
  test('is written once', async () => {
    expect(await renamedTwice()).toEqual(['written', 'written']);
  });

  const trigger = `create function look() returns trigger language plpgsql as 'begin return new; end'`;
  test.each([
    [
      'a check',
      `alter table tags add constraint rule check (label <> 'no')`,
      'alter table tags drop constraint rule',
    ],
    [
      'a unique constraint',
      'alter table tags add constraint rule unique (label)',
      'alter table tags drop constraint rule',
    ],
    ['a unique index', 'create unique index rule on tags (label)', 'drop index rule'],
    ['a unique index of the id and more', 'create unique index rule on tags (id, label)', 'drop index rule'],
    ['an index of an expression', 'create index rule on tags ((1 / version))', 'drop index rule'],
    ['an index with a condition', `create index rule on tags (id) where 1 / version > 2`, 'drop index rule'],
    [
      'an exclusion',
      'alter table tags add constraint rule exclude (label with =)',
      'alter table tags drop constraint rule',
    ],
    [
      'a foreign key',
      `create table labels (label text primary key); insert into labels values ('first'), ('second'), ('third');
       alter table tags add constraint rule foreign key (label) references labels`,
      'drop table labels cascade',
    ],
    [
      'a row trigger',
      `${trigger}; create trigger look before update on tags for each row execute function look()`,
      'drop function look cascade',
    ],
    ['a publication', 'create publication rule for table tags', 'drop publication rule'],
    ['a publication of all tables', 'create publication rule for all tables', 'drop publication rule'],
    [
      'a statement trigger',
      `${trigger}; create trigger look after update on tags execute function look()`,
      'drop function look cascade',
    ],
    [
      'a generated column',
      'alter table tags add inverse numeric generated always as (1 / version) stored',
      'alter table tags drop inverse',
    ],
    [
      'row security',
      'alter table tags enable row level security',
      'alter table tags disable row level security',
    ],
    ['a rule', 'create rule look as on delete to tags do also nothing', 'drop rule look on tags'],
    [
      'a partitioned table as its parent',
      'create table all_tags (like tags) partition by list (state); alter table all_tags attach partition tags default',
      'alter table all_tags detach partition tags; drop table all_tags',
    ],
    ['a child', 'create table children () inherits (tags)', 'drop table children'],
    [
      'a view in its place',
      'alter table tags rename to stored_tags; create view tags as select * from stored_tags',
      'drop view tags; alter table stored_tags rename to tags',
    ],
  ])('is written twice where the table has %s', async (_what, statements, undo) => {
    await alter(statements, undo);
    expect(await renamedTwice()).toEqual(['written', 'single']);
  });

  test.each([
    [
      'a domain',
      `create domain short as text check (length(value) < 10); alter table tags alter label type short`,
      'alter table tags alter label type text; drop domain short',
    ],
    [
      'a shorter type',
      'alter table tags alter label type varchar(10)',
      'alter table tags alter label type text',
    ],
    [
      'a narrower type',
      'alter table tags alter version type integer',
      'alter table tags alter version type bigint',
    ],
  ])(
    'is written alone where a column has %s instead of its declared type',
    async (_what, statements, undo) => {
      await alter(statements, undo);
      expect(await renamedTwice()).toEqual(['single', 'single']);
    },
  );

  test('is written twice where a publication has all tables of its schema', async ({ skip }) => {
    const [server] = await query<{ version: number }>(
      database.url,
      `select current_setting('server_version_num')::integer as version`,
    );
    skip((server?.version ?? 0) < 150_000, 'PostgreSQL 14 has no such publications');
    await alter('create publication rule for tables in schema public', 'drop publication rule');
    expect(await renamedTwice()).toEqual(['written', 'single']);
  });

  test.each([
    ['an index of a column', 'create index rule on tags (label)', 'drop index rule'],
    [
      'a publication of additions',
      `create publication rule for table tags with (publish = 'insert')`,
      'drop publication rule',
    ],
    [
      'a publication of a table of its name in another schema',
      'create schema another; create table another.tags (); create publication rule for table another.tags',
      'drop schema another cascade; drop publication rule',
    ],
  ])('is written once when there is %s', async (_what, statements, undo) => {
    await alter(statements, undo);
    expect(await renamedTwice()).toEqual(['written', 'written']);
  });

  test.each([
    ['once where a column has the length that Drizzle says', 9, 'written'],
    ['twice where a column is shorter than Drizzle says', 8, 'single'],
    ['twice where a column is longer than Drizzle says', 10, 'single'],
  ])('is written %s', async (_what, length, outcome) => {
    await alter(
      `alter table tags alter label type varchar(${length})`,
      'alter table tags alter label type text',
    );
    const shortened = new PgShortTagRepository(registry);
    const tag = tagOf(Tag.of(firstShard, 'first'), 1);
    const group = [tag, tagOf(tag.rename('third'), 2)].map((each) => changeSetOf(shortened, each));
    expect(await registry.transactionManager(firstShard).persistAll(group)).toEqual(['written', outcome]);
  });

  test('is written twice when a column is NOT NULL only in the database', async () => {
    const accounts = new PgAccountRepository(registry);
    const group = (): readonly ChangeSet[] => {
      const account = Account.open(firstShard, systemClock.now(), { note: 'a note' });
      return [1, 2].map((version) => changeSetOf(accounts, account.variant({ version })));
    };
    const manager = registry.transactionManager(firstShard);
    expect(await manager.persistAll(group())).toEqual(['written', 'written']);
    await alter('delete from accounts; alter table accounts alter note set not null', 'select 1');
    onTestFinished(() =>
      query(database.url, 'alter table accounts alter note drop not null').then(() => undefined),
    );
    const other = openRegistry([{ group: 0, member: 0, url: database.url }]);
    await other.ready();
    expect(await other.transactionManager(firstShard).persistAll(group())).toEqual(['written', 'single']);
  });

  test.each([
    ['once where it has every label of an enum', `'first', 'second', 'third'`, 'written'],
    ['twice where it lacks a label of an enum', `'first', 'third'`, 'single'],
  ])('is written %s', async (_what, labels, outcome) => {
    await alter(
      `create type tag_label as enum (${labels}); alter table tags alter label type tag_label using label::tag_label`,
      'delete from tags; alter table tags alter label type text; drop type tag_label',
    );
    const labelled = new PgLabelledTagRepository(registry);
    const tag = tagOf(Tag.of(firstShard, 'first'), 1);
    const group = [tag, tagOf(tag.rename('third'), 2)].map((each) => changeSetOf(labelled, each));
    expect(await registry.transactionManager(firstShard).persistAll(group)).toEqual(['written', outcome]);
  });

  test('is written twice when only the database knows the whole row', async () => {
    await alter(gadgetStatements, 'drop schema inventory cascade');
    const gadgets = new PgGadgetRepository(registry);
    const gadget = Gadget.of({ version: 1 });
    const group = [gadget, gadget.with({ version: 2 })].map((each) => changeSetOf(gadgets, each));
    expect(await registry.transactionManager(firstShard).persistAll(group)).toEqual(['written', 'single']);
  });

  test('is written twice some time after the table was altered', async () => {
    let nowMs = 0;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
    onTestFinished(() => clock.mockRestore());
    expect(await renamedTwice()).toEqual(['written', 'written']);
    await alter('create unique index rule on tags (label)', 'drop index rule');
    nowMs += 10_000;
    expect(await renamedTwice()).toEqual(['written', 'single']);
  });
});

test('a plan that a constraint refuses fails, whatever follows it in its group', async () => {
  const suite = suiteOn(registry, { groupCommit: true });
  await alter(
    'alter table accounts add constraint never_below_zero check (balance >= 0)',
    'alter table accounts drop constraint never_below_zero',
  );
  const manager = registry.transactionManager(firstShard);
  const [busy, account] = await suite.store(
    ...[1, 2].map(() => Account.open(firstShard, systemClock.now(), { balance: decimal('0') })),
  );
  const written = Promise.withResolvers<void>();
  const sent = vi.spyOn(manager, 'persist');
  const persistNow = manager.persist.bind(manager);
  sent.mockImplementationOnce(async (changes) => {
    await written.promise;
    return persistNow(changes);
  });
  const first = suite.credit(busy!, '1');
  await vi.waitFor(() => expect(sent).toHaveBeenCalled(), 30_000);
  const encode = vi.spyOn(suite.accounts, 'encode');
  const withdrawn = suite.credit(account!, '-5').catch((error: unknown) => FrameworkError.find(error)?.code);
  const deposited = suite.credit(account!, '10');
  // Another model is encoded only after the executor has given up waiting for the first write. So the withdrawal is refused before
  // that write ends.
  await vi.waitFor(() => expect(encode.mock.calls.length).toBeGreaterThanOrEqual(2), 30_000);
  written.resolve();
  await first;
  expect(await withdrawn).toBe('constraint-violation');
  expect(await deposited).toMatchObject({ version: 2, balance: decimal('10') });
});

test.each([
  [
    'a trigger',
    `create function fee() returns trigger language plpgsql as 'begin new.balance := new.balance - 1; return new; end';
     create trigger fee before update on accounts for each row execute function fee()`,
    'drop function fee cascade',
    10,
    172,
  ],
  [
    'a column of another scale',
    'alter table accounts alter balance type numeric(38, 0)',
    'alter table accounts alter balance type numeric(38, 18)',
    10.4,
    180,
  ],
])('the next action reads a row as %s has changed it', async (_what, statements, undo, credit, sum) => {
  const suite = suiteOn(registry, { groupCommit: true });
  const [account] = await suite.store(
    Account.open(firstShard, systemClock.now(), { balance: decimal('100') }),
  );
  await alter(statements, undo);
  await Promise.all(Array.from({ length: 8 }, () => suite.credit(account, String(credit))));
  const { version, balance } = await suite.accounts.getById(account.id);
  expect([version, Number(balance)]).toEqual([9, sum]);
});

test('a row of a plain table can be read, as it was sent, before it is written', async () => {
  const suite = suiteOn(registry, { groupCommit: true });
  const [account] = await suite.store(Account.open(firstShard, systemClock.now()));
  const groups = vi.spyOn(registry.transactionManager(firstShard), 'persistAll');
  await vi.waitFor(async () => {
    await Promise.all(Array.from({ length: 20 }, () => suite.credit(account, '1')));
    expect(Math.max(...groups.mock.calls.map(([group]) => group.length))).toBeGreaterThan(2);
  }, 30_000);
});

function tagOf({ id, state, label }: Tag, version: number): Tag {
  return new Tag({ id, state, label, version });
}
