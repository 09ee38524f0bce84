// @module-tag postgres
import {
  Action,
  ActionExecutor,
  type DatabaseRegistry,
  type Principal,
  ShardedId,
  systemClock,
} from '@framework/core';
import { firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Gadget, PgGadgetRepository, gadgetStatements, type GadgetRow } from './fixtures/gadget.js';
import { openRegistry } from './fixtures/open-registry.js';
import { changeSetOf, persist, persistInGroup, persistTogether } from './fixtures/persist.js';
import { query } from './fixtures/query.js';

const seed = Number(process.env['FC_SEED'] ?? Date.now() % 2 ** 31);

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

const columnOf = async (column: string, { id }: Gadget): Promise<unknown> => {
  const rows = await query(
    database.url,
    `select ${column} as value from inventory."Gadget ""table""" where id = '${id.value}'`,
  );
  return (rows[0] as { readonly value: unknown }).value;
};
const putOnShelf = async ({ id }: Gadget, shelf: string): Promise<void> => {
  const update = `update inventory."Gadget ""table""" set shelf = '${shelf}' where id = '${id.value}'`;
  await query(database.url, update);
};

describe.each([
  ['', persist],
  [', written in a group,', persistInGroup],
])('a column that the row of a model leaves out%s', (_how, write) => {
  test('takes the value that the database supplies when the model is added', async () => {
    const gadget = Gadget.of({ version: 1 });
    await write(registry, gadgets, gadget);
    expect(await columnOf('shelf', gadget)).toBe('nowhere');
  });

  test('keeps the value of another writer when the model is updated', async () => {
    const gadget = Gadget.of({ version: 1 });
    await write(registry, gadgets, gadget);
    await putOnShelf(gadget, 'left');
    await write(registry, gadgets, gadget.with({ version: 2, amount: 7 }));
    expect(await columnOf('shelf', gadget)).toBe('left');
    expect(await gadgets.getById(gadget.id)).toMatchObject({ version: 2, amount: 7 });
  });

  test('keeps its value even if it is NOT NULL without a default', async () => {
    const gadget = Gadget.of({ version: 1, name: 'cog' });
    await write(registry, gadgets, gadget);
    const nameless = new PgGadgetRepository(registry, ({ name: _name, ...row }) => row);
    await write(registry, nameless, gadget.with({ version: 2, name: 'other', amount: 7 }));
    expect(await gadgets.getById(gadget.id)).toMatchObject({ version: 2, amount: 7, name: 'cog' });
  });

  test('is not the same as one that is undefined, which becomes null', async () => {
    const gadget = Gadget.of({ version: 1, parts: [1] });
    await write(registry, gadgets, gadget);
    const cleared = new PgGadgetRepository(registry, (row) => ({ ...row, parts: undefined }));
    await write(registry, cleared, gadget.with({ version: 2 }));
    expect(await gadgets.getById(gadget.id)).toMatchObject({ version: 2, parts: null });
  });
});

test('a group writes rows of one table that leave out different columns', async () => {
  const before = Array.from({ length: 6 }, (_unused, index) => Gadget.of({ version: 1, amount: index }));
  await persistTogether(
    registry,
    before.map((gadget) => changeSetOf(gadgets, gadget)),
  );
  const partial = [
    gadgets,
    new PgGadgetRepository(registry, ({ amount: _amount, ...row }) => row),
    new PgGadgetRepository(registry, ({ price: _price, ...row }) => row),
  ];
  const after = before.map((gadget) => gadget.with({ version: 2, amount: 100, price: 1.25 }));
  await persistTogether(
    registry,
    after.map((gadget, index) => changeSetOf(partial[index % partial.length]!, gadget)),
  );
  const stored = await gadgets.findAllByIds(before.map(({ id }) => id));
  expect(stored.map(({ version, amount, price }) => [version, amount, price])).toEqual([
    [2, 100, 1.25],
    [2, 1, 1.25],
    [2, 100, 12.5],
    [2, 100, 1.25],
    [2, 4, 1.25],
    [2, 100, 12.5],
  ]);
});

test('a model that is updated twice in a group through different columns gets both changes', async () => {
  const gadget = Gadget.of({ version: 1 });
  await persist(registry, gadgets, gadget);
  const withoutPrice = new PgGadgetRepository(registry, ({ price: _price, ...row }) => row);
  const group = [
    changeSetOf(gadgets, gadget.with({ version: 2, price: 3.5 })),
    changeSetOf(withoutPrice, gadget.with({ version: 3, amount: 9, price: 8 })),
  ];
  const manager = registry.transactionManager(firstShard);
  for (const [index, outcome] of (await manager.persistAll(group)).entries())
    if (outcome === 'single') await manager.persist(group[index]!);
  expect(await gadgets.getById(gadget.id)).toMatchObject({ version: 3, price: 3.5, amount: 9 });
});

test('a grouped executor updates gadgets without touching a column that it does not know', async () => {
  class Count extends Action<{ readonly id: string }> {
    protected async perform(_principal: Principal, { id }: { readonly id: string }): Promise<void> {
      const gadget = await gadgets.getById(id);
      this.plan().update(gadget.with({ amount: gadget.amount + 1 }));
    }
  }
  Object.defineProperty(Count, 'name', { value: 'CountAction' });
  const actions = [new Count(systemClock)];
  const executor = new ActionExecutor({
    namespace: 'adapter.test',
    databases: registry,
    repositories: [gadgets],
    actions,
    groupCommit: true,
  });
  const gadget = Gadget.of({ version: 1, amount: 0 });
  await persist(registry, gadgets, gadget);
  await putOnShelf(gadget, 'right');
  const principal = { name: 'tester' };
  await Promise.all(
    Array.from({ length: 20 }, () => executor.execute(principal, Count, { id: gadget.id.value })),
  );
  expect(await gadgets.getById(gadget.id)).toMatchObject({ amount: 20, version: 21 });
  expect(await columnOf('shelf', gadget)).toBe('right');
});

const changeable = ['name', 'price', 'amount', 'labels', 'parts', 'origin', 'token'] as const;

/** One write of the gadget with the number `place`: the values of `fields`, except for the columns in `leftOut`. */
const randomWrite = fc.record({
  place: fc.nat(3),
  leftOut: fc.subarray([...changeable]),
  fields: fc.record({
    name: fc.string({ maxLength: 5 }).filter((text) => !text.includes('\u0000')),
    price: fc.integer({ min: -9_999, max: 9_999 }).map((cents) => cents / 100),
    amount: fc.integer({ min: 1 }),
    labels: fc.array(fc.constantFrom('a', 'NULL', '{}', '')),
    parts: fc.option(fc.array(fc.option(fc.constantFrom<unknown>('NULL', 1, { a: [null] })))),
    origin: fc.constantFrom('here', 'there'),
    token: fc.option(fc.string({ maxLength: 3 }).filter((text) => !text.includes('\u0000'))),
  }),
});

test(`random groups whose rows omit random columns end as a reference model predicts (seed ${seed})`, async () => {
  const groups = fc.array(
    fc.uniqueArray(randomWrite, { selector: ({ place }) => place, minLength: 1, maxLength: 4 }),
    { maxLength: 5 },
  );
  await fc.assert(
    fc.asyncProperty(groups, fc.boolean(), async (sequence, grouped) => {
      const first = Array.from({ length: 4 }, () =>
        Gadget.of({ version: 1, token: 'token', origin: 'here' }),
      );
      const sets = first.map((gadget) => changeSetOf(gadgets, gadget));
      await persistTogether(registry, sets);
      for (const gadget of first) await putOnShelf(gadget, 'left');
      const expected = first.map((gadget) => Object.fromEntries(Object.entries(gadget)));
      for (const group of sequence) {
        const written = group.map(({ place, leftOut, fields }) => {
          const version = (expected[place]!['version'] as number) + 1;
          const kept = Object.entries(fields).filter(([key]) => !(leftOut as string[]).includes(key));
          Object.assign(expected[place]!, Object.fromEntries(kept), { version });
          const without = new PgGadgetRepository(registry, (row) =>
            Object.fromEntries(Object.entries(row).filter(([key]) => !(leftOut as string[]).includes(key))),
          );
          return changeSetOf(without, first[place]!.with({ ...fields, version }));
        });
        if (grouped) await persistTogether(registry, written);
        else for (const set of written) await registry.transactionManager(firstShard).persist(set);
      }
      const stored = await gadgets.findAllByIds(first.map(({ id }) => id));
      const serials = stored.map(({ serial }) => serial);
      expect(stored).toEqual(
        expected.map((fields, place) => first[0]!.with({ ...fields, serial: serials[place] })),
      );
      for (const gadget of first) expect(await columnOf('shelf', gadget)).toBe('left');
    }),
    { seed, numRuns: 25 },
  );
});

describe('a row', () => {
  const gadget = Gadget.of({ version: 3 });

  test.each<[string, (row: GadgetRow) => Partial<GadgetRow>]>([
    ['with the id of another model', (row) => ({ ...row, id: ShardedId.generate(Gadget, firstShard).value })],
    ['with the id in another case', (row) => ({ ...row, id: row.id.toUpperCase() })],
    ['without an id', ({ id: _id, ...row }) => row],
    ['with the previous version', (row) => ({ ...row, version: 2 })],
    ['without a version', ({ version: _version, ...row }) => row],
  ])('%s is refused', (_what, change) => {
    expect(() => new PgGadgetRepository(registry, change).encode(gadget)).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }) as Error,
    );
  });
});
