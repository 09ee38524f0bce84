// @module-tag postgres
import {
  Action,
  ActionExecutor,
  type DatabaseRegistry,
  Entity,
  Id,
  type Principal,
  type Repository,
  type ShardIdentifier,
  type ShardingStrategy,
  openDatabases,
  systemClock,
} from '@framework/core';
import type { ModelMapper } from '@framework/core/adapter';
import { firstShard, otherDatabaseShard } from '@framework/conformance';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { pgTable } from 'drizzle-orm/pg-core';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { PgRepository, entityColumns, textId } from '../src/index.js';
import { openRegistry } from './fixtures/open-registry.js';
import { PgAccountRepository } from './fixtures/pg-account-repository.js';
import { persist } from './fixtures/persist.js';
import { query } from './fixtures/query.js';

class Customer extends Entity<Customer, Id<Customer>, string> {
  static of(id: string): Customer {
    return new Customer({ id: Id.of(Customer, id), state: 'KNOWN', version: 1 });
  }
}

const customers = pgTable('customers', {
  ...entityColumns(Customer),
  id: textId('id', Customer).primaryKey(),
});

const onFirstShard: ShardingStrategy<Customer> = {
  shardOfModel: () => firstShard,
  shardOfId: () => firstShard,
};

function customersOn(databases: DatabaseRegistry): PgRepository<Customer, typeof customers> {
  return new PgRepository({ model: Customer, table: customers, databases, strategy: onFirstShard });
}

let database: TestDatabase;
let registry: DatabaseRegistry;
beforeAll(async () => {
  database = await createTestDatabase();
  await query(
    database.url,
    'create table customers (id text primary key, state text not null, version bigint not null)',
  );
});
afterAll(() => database.drop());
beforeEach(async () => {
  registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
});

describe('a table whose ids are texts', () => {
  test('finds a row by its id, and by no text that PostgreSQL would convert to it', async () => {
    const repository = customersOn(registry);
    // A lone surrogate is sent as this character.
    const replaced = Customer.of('customer \ufffd');
    await persist(registry, repository, replaced);
    expect(await repository.getById('customer \ufffd')).toEqual(replaced);
    for (const id of ['customer \ud83d', 'customer \u0000']) {
      const refusals = [
        repository.findById(id),
        repository.findAllByIds([id]),
        repository.existsById(id),
        repository.getById(id),
      ];
      for (const refusal of refusals) await expect(refusal).rejects.toMatchObject({ code: 'invalid-id' });
      await expect(repository.findPage({ limit: 1, after: id })).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    }
  });
});

class AddAction extends Action<{ readonly id: string }> {
  protected async perform(_principal: Principal, { id }: { readonly id: string }): Promise<void> {
    this.plan().add(new Customer({ id: Id.of(Customer, id), state: 'KNOWN' }));
  }
}

const upperCase = '01A2221F-E064-4000-8000-45DFB5D8D68F';

describe.each<[string, () => Promise<[DatabaseRegistry, Repository<Customer> & ModelMapper<Customer>]>]>([
  [
    'PostgreSQL',
    async () => {
      await query(database.url, 'truncate customers');
      return [registry, customersOn(registry)];
    },
  ],
  [
    'memory',
    async () => {
      const databases = openDatabases(memorySharding(firstShard), memory());
      return [databases, new MemoryRepository({ model: Customer, databases, strategy: onFirstShard })];
    },
  ],
])('texts as ids in %s', (_storage, open) => {
  test('differ in case, even if they are UUIDs', async () => {
    const [databases, repository] = await open();
    const executor = new ActionExecutor({
      namespace: 'adapter.test',
      databases,
      repositories: [repository],
      actions: [new AddAction(systemClock)],
    });
    const add = (id: string): Promise<void> => executor.execute({ name: 'tester' }, AddAction, { id });
    for (const id of ['fr', ' x ', upperCase]) await add(id);
    for (const other of ['FR', 'x', upperCase.toLowerCase()])
      expect(await repository.existsById(other)).toBe(false);
    for (const id of ['FR', upperCase.toLowerCase()]) await add(id);
    const ids = ['fr', 'FR', ' x ', upperCase, upperCase.toLowerCase()];
    expect((await repository.findAllByIds(ids)).map(({ id }) => id.value)).toEqual(ids);
    for (const id of ids)
      expect(await repository.getById(id)).toMatchObject({ id: { value: id }, version: 1 });
    for (const id of ['a\ud83d', 'a\u0000'])
      await expect(repository.findById(id)).rejects.toMatchObject({
        code: 'invalid-id',
        message: expect.stringContaining('is not a text that a database can store'),
      });
  });
});

describe('a table whose ids have a case-insensitive collation', () => {
  test('finds a row by its exact id only, alone or in a batch', async () => {
    const other = await createTestDatabase();
    onTestFinished(() => other.drop());
    const folded = openRegistry([{ group: 0, member: 0, url: other.url }]);
    await folded.ready();
    await query(
      other.url,
      `create collation folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
       create table customers (id text collate folded primary key, state text not null, version bigint not null)`,
    );
    const repository = customersOn(folded);
    for (const id of ['anna', 'bob']) await persist(folded, repository, Customer.of(id));
    class FindAction extends Action<{ readonly id: string }, string> {
      protected async perform(_principal: Principal, { id }: { readonly id: string }): Promise<string> {
        return (await repository.findById(id))?.id.value ?? 'none';
      }
    }
    const executor = new ActionExecutor({
      namespace: 'adapter.test',
      databases: folded,
      repositories: [repository],
      actions: [new FindAction(systemClock)],
    });
    const find = (id: string): Promise<string> => executor.execute({ name: 'tester' }, FindAction, { id });
    expect(await Promise.all(['Anna', 'Bob', 'anna'].map(find))).toEqual(['none', 'none', 'anna']);
    expect(await find('Anna')).toBe('none');
    expect(await find('anna')).toBe('anna');
    expect(await repository.findById('Anna')).toBeUndefined();
    expect(await repository.existsById('Anna')).toBe(false);
    expect(await repository.findAllByIds(['Anna', 'bob'])).toMatchObject([{ id: Id.of(Customer, 'bob') }]);
    await folded.transactionManager(firstShard).inTransaction(async () => {
      expect(await repository.findById('Anna')).toBeUndefined();
      expect(await repository.findAllByIds(['Anna'])).toEqual([]);
    });
    await expect(repository.getById('Anna')).rejects.toMatchObject({ code: 'entity-not-found' });
  });
});

test('texts as ids are on pages in the order of their bytes, over databases with the locale of a language', async () => {
  const ids = ['-b', 'B', 'Z', '_', 'a', 'b', 'ä', 'é', '\u{1f600}'];
  const shards = [firstShard, otherDatabaseShard] as const;
  const shardOf = (id: string): ShardIdentifier => shards[ids.indexOf(id) % 2 === 0 ? 0 : 1];
  const databases = await Promise.all(shards.map(() => createTestDatabase()));
  onTestFinished(async () => void (await Promise.all(databases.map((each) => each.drop()))));
  for (const [index, { url }] of databases.entries())
    await query(
      url,
      `create table customers (id text collate "en-x-icu" primary key, state text not null, version bigint not null);
       insert into customers select id, 'KNOWN', 1
         from unnest(array['${ids.join("','")}']) with ordinality as given (id, n) where n % 2 <> ${index}`,
    );
  const located = openRegistry(
    shards.map(({ group, member }, index) => ({ group, member, url: databases[index]!.url })),
  );
  await located.ready();
  const repository = new PgRepository({
    model: Customer,
    table: customers,
    databases: located,
    strategy: { shardOfModel: ({ id }) => shardOf(id.value), shardOfId: shardOf },
  });
  const read: string[] = [];
  for (let after: string | undefined, pages = 0; pages === 0 || after !== undefined; pages++) {
    const page = await repository.findPage({ limit: 1, after });
    read.push(...page.items.map(({ id }) => id.value));
    after = page.next;
  }
  expect(read).toEqual(ids);
});

describe('a table whose ids are UUIDs', () => {
  test('refuses a text that is not a UUID, even if the strategy accepts it', async () => {
    const anywhere = { shardOfModel: () => firstShard, shardOfId: () => firstShard };
    const accounts = new PgAccountRepository(registry, anywhere);
    for (const refusal of [accounts.findById('x'), accounts.findAllByIds(['x']), accounts.existsById('x')])
      await expect(refusal).rejects.toMatchObject({ code: 'invalid-id' });
  });
});
