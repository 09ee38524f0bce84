// @module-tag postgres
import { type DatabaseRegistry, type NewEntity, systemClock } from '@framework/core';
import { Account, type AccountFields, Tag, firstShard, once } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { Gadget, PgGadgetRepository, gadgetStatements } from './fixtures/gadget.js';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { persist, persistInGroup } from './fixtures/persist.js';
import { query } from './fixtures/query.js';

describe.each([
  ['', persist],
  [', written in a group,', persistInGroup],
])('the columns of a table%s', (_how, write) => {
  let database: TestDatabase;
  let registry: DatabaseRegistry;
  let gadgets: PgGadgetRepository;
  beforeAll(async () => {
    database = await createTestDatabase();
    await query(database.url, gadgetStatements);
  });
  afterAll(() => database.drop());
  beforeEach(async () => {
    registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
    await registry.ready();
    gadgets = new PgGadgetRepository(registry);
  });

  const store = async (gadget: Gadget): Promise<Gadget> => {
    await write(registry, gadgets, gadget.with({ version: gadget.version + 1 }));
    return gadgets.getById(gadget.id);
  };

  test('may belong to a schema of its own, with a state enum that has no DELETED', async () => {
    const gadget = await store(Gadget.of());
    expect(gadget).toMatchObject({ state: 'NEW', version: 1, name: 'wheel', price: 12.5 });
    const used = await store(gadget.with({ state: 'USED' }));
    expect(used).toMatchObject({ state: 'USED', version: 2 });
    expect(await gadgets.findAllByIds([used.id])).toEqual([used]);
    expect((await gadgets.findPage({ limit: 1_000 })).items).toContainEqual(used);
    expect(await gadgets.count()).toBeGreaterThan(0);
  });

  test('take and keep the default of the database when the row leaves them out', async () => {
    const gadget = await store(Gadget.of());
    expect(gadget.origin).toBe('here');
    expect(gadget.serial).toBeGreaterThan(0);
    const moved = await store(gadget.with({ origin: 'there' }));
    const touched = await store(moved.with({ origin: undefined, amount: 4 }));
    expect(touched).toMatchObject({ origin: 'there', amount: 4, serial: gadget.serial });
  });

  test('take and keep the default of the table when the row leaves them out', async () => {
    const gadget = await store(Gadget.of());
    expect(gadget.token).toMatch(/^[0-9a-f-]{36}$/);
    const touched = await store(gadget.with({ token: undefined, amount: 4 }));
    expect(touched).toMatchObject({ token: gadget.token, amount: 4 });
  });

  test('store null even when they have a default', async () => {
    const gadget = await store(Gadget.of({ token: null }));
    expect(gadget.token).toBeNull();
    const other = await store(Gadget.of());
    expect(await store(other.with({ token: null }))).toMatchObject({ token: null });
  });

  test.each<[string, Partial<NewEntity<Gadget>>]>([
    ['a text of full length', { name: '12345' }],
    ['a text of full length beyond the basic plane', { name: '🚲🚲🚲🚲🚲' }],
    ['a number with all its digits', { price: 9999.99 }],
    ['a negative number', { price: -0.01 }],
    ['a single-precision number', { weight: 0.1 }],
    ['a tiny single-precision number', { weight: -1.1755e-38 }],
    ['a huge single-precision number', { weight: 3.40282e38 }],
    ['a date in whole seconds', { soldSecond: new Date('2026-01-01T00:00:01Z') }],
    ['an early date', { madeDate: new Date('0001-01-01T00:00:00.001Z') }],
    ['a list of texts', { labels: ['', 'a,b', '"quoted"', '{braces}', 'back\\slash', 'null', 'ünï 🚲'] }],
    ['a list of JSON', { parts: [{ a: [1] }, 12, '12', 'text', true] }],
  ])('keep %s', async (_what, fields) => {
    expect(await store(Gadget.of(fields))).toMatchObject(fields);
  });

  test.each<[string, Partial<NewEntity<Gadget>>, string]>([
    ['a text that is too long', { name: '123456' }, 'Gadget.name'],
    ['a text that would be padded', { code: 'a' }, 'Gadget.code'],
    ['a number that would be rounded', { price: 1.234 }, 'Gadget.price'],
    ['a number that is too large', { price: 10_000 }, 'Gadget.price'],
    ['a double in a column of single precision', { weight: 0.1 + 0.2 }, 'Gadget.weight'],
    ['a number beyond single precision', { weight: 1e39 }, 'Gadget.weight'],
    ['a fraction in a column of integers', { amount: 1.5 }, 'Gadget.amount'],
    [
      'milliseconds in a column of whole seconds',
      { soldSecond: new Date('2026-01-01T00:00:00.001Z') },
      'Gadget.soldSecond',
    ],
    ['a year before the year 1', { madeDate: new Date('0000-01-01T00:00:00Z') }, 'Gadget.madeDate'],
    ['a list with a text that cannot be stored', { labels: ['fine', '\u0000'] }, 'Gadget.labels[1]'],
    ['a list with a number that JSON does not have', { parts: [Number.NaN] }, 'Gadget.parts[0]'],
    ['null in a column that must not be null', { name: null as unknown as string }, 'Gadget.name'],
  ])('refuse %s', (_what, fields, path) => {
    expect(() => gadgets.encode(Gadget.of({ ...fields, version: 1 }))).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path }) as Error,
    );
  });
});

describe('a row that is not yet written', () => {
  let database: TestDatabase;
  let registry: DatabaseRegistry;
  beforeAll(async () => {
    database = await createTestDatabase();
    await query(database.url, gadgetStatements);
  });
  afterAll(() => database.drop());
  beforeEach(async () => {
    registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
    await registry.ready();
  });

  test.each<[string, Partial<AccountFields>]>([
    ['with usual values', {}],
    ['with a decimal of few digits', { balance: '-007.50' }],
    ['with a decimal of minus zero', { balance: '-0' }],
    ['with a decimal without an integer part', { balance: '.5' }],
    ['with a large integer', { quota: -(2n ** 63n) }],
    ['with a double', { score: -1.5e-7 }],
    ['with an early instant', { dueDate: new Date('1000-01-01T00:00:00.001Z') }],
    ['with a text', { note: `'single' "double" {braces} \\ ünï 🚲` }],
    ['with JSON', { settings: { b: [1, 'two', null, { c: 0.1 }], a: '12' } }],
    ['with JSON that is a text', { settings: '{"looks": "like JSON"}' }],
  ])('%s decodes to the model that is read after it is written', async (_what, fields) => {
    const { accounts } = new PgFixture(registry);
    const account = Account.blank(firstShard, systemClock.now(), fields).variant({ version: 1 });
    const row = accounts.encode(account);
    // A row can be decoded only once the catalog has been queried about the table.
    const staged = await vi.waitUntil(() => accounts.decode(row, firstShard), 30_000);
    await persistInGroup(registry, accounts, account);
    expect(staged).toEqual(await accounts.getById(account.id));
  });

  test('decodes to no model when the database sets some of its values', () => {
    const gadgets = new PgGadgetRepository(registry);
    expect(gadgets.decode(gadgets.encode(Gadget.of({ version: 1 })), firstShard)).toBeUndefined();
  });
});

describe('a table that differs from its Drizzle definition', () => {
  test('is written row by row', async () => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
    await registry.ready();
    await query(
      database.url,
      `create type mood as enum ('calm', 'wild'); alter table tags alter column label type mood using 'calm'`,
    );
    const suite = suiteOn(registry, { groupCommit: true });
    const tags = Array.from({ length: 10 }, () => Tag.of(firstShard, 'wild'));
    for (let round = 0; round < 2; round++)
      await Promise.all(
        tags.map((tag) => suite.stage((plan) => plan.add(Tag.of(firstShard, tag.label)), once)),
      );
    expect(await suite.fixture.tags.count()).toBe(20);
  });
});

describe('a database with another time zone and date style', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
    await query(
      database.url,
      `alter database ${database.database} set timezone = 'America/New_York';
       alter database ${database.database} set datestyle = 'German'`,
    );
  });
  afterAll(() => database.drop());

  test.each(['1850-06-01T12:34:56.789Z', '2026-03-08T06:59:59.999Z', '2026-07-01T00:00:00Z'])(
    'returns the instant %s unchanged',
    async (instant) => {
      const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
      await registry.ready();
      const suite = suiteOn(registry);
      const dueDate = new Date(instant);
      const [account] = await suite.store(Account.open(firstShard, systemClock.now(), { dueDate }));
      expect(await suite.accounts.getById(account.id)).toEqual(account);
      expect(await suite.accounts.findAllByIds([account.id])).toEqual([account]);
      const { log } = registry.transactionManager(firstShard);
      const { items } = await log.findByModel({ name: 'Account', id: account.id.value }, { limit: 1 });
      expect(Math.abs(items[0]!.createdDate.getTime() - systemClock.now().getTime())).toBeLessThan(60_000);
    },
  );
});
