import { type Page, ShardedId, systemClock } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { Account, Tag } from '../account.js';
import {
  type SuiteContext,
  otherDatabaseShard,
  at,
  firstShard,
  sameDatabaseShard,
  noLimits,
  once,
  unknown,
} from '../suite-context.js';

/** Registers tests of a repository's reads, over all shards. */
export function describeReads(context: SuiteContext): void {
  describe('reading', () => {
    test('returns a model by its id', async () => {
      const account = await context.openAccount(otherDatabaseShard);
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(await context.accounts.findById(account.id.value)).toEqual(account);
      expect(await context.accounts.existsById(account.id)).toBe(true);
    });

    test('accepts ids in upper case', async () => {
      const { id } = await context.openAccount();
      const upperCase = id.value.toUpperCase();
      expect(await context.accounts.getById(upperCase)).toMatchObject({ id });
      expect(await context.accounts.findAllByIds([upperCase])).toMatchObject([{ id }]);
      expect(await context.accounts.existsById(upperCase)).toBe(true);
    });

    test('reports that a model does not exist', async () => {
      const id = ShardedId.generate(Account, firstShard);
      expect(await context.accounts.findById(id)).toBeUndefined();
      expect(await context.accounts.existsById(id)).toBe(false);
      await expect(context.accounts.getById(id)).rejects.toMatchObject({
        code: 'entity-not-found',
        model: 'Account',
        id: id.value,
      });
    });

    test('returns several models in the order of their ids, over all shards, without missing ones', async () => {
      const [one, two, three] = [
        await context.openAccount(firstShard),
        await context.openAccount(otherDatabaseShard),
        await context.openAccount(sameDatabaseShard),
      ];
      const missing = ShardedId.generate(Account, firstShard);
      const found = await context.accounts.findAllByIds([three.id, missing, one.id.value, two.id]);
      expect(found).toEqual([three, one, two]);
      expect(await context.accounts.findAllByIds([])).toEqual([]);
    });

    test('returns different objects to executions that read a model at the same time', async () => {
      const account = await context.openAccount(firstShard, { settings: { tags: ['plain'] } });
      const own = [await context.openAccount(firstShard), await context.openAccount(firstShard)];
      const read: Account[] = [];
      const executions = own.map(async ({ id }) =>
        context.stage(async (plan) => {
          // Each execution locks its own account first, so neither waits for the other.
          const first = await context.accounts.getById(id);
          read.push(await context.accounts.getById(account.id));
          plan.update(first.annotate('has read'));
        }),
      );
      await Promise.all(executions);
      const [one, other] = read;
      expect(one).toEqual(other);
      expect(one).not.toBe(other);
      expect(one?.settings).not.toBe(other?.settings);
    });

    test('returns the same object to all who read a model by its id in one execution', async () => {
      const account = await context.openAccount(otherDatabaseShard);
      const other = await context.openAccount(firstShard);
      await context.stage(async () => {
        const first = await context.accounts.getById(account.id);
        expect(await context.accounts.findById(account.id.value.toUpperCase())).toBe(first);
        const several = await context.accounts.findAllByIds([other.id, account.id]);
        expect(several.map(({ id }) => id)).toEqual([other.id, account.id]);
        expect(several[1]).toBe(first);
      });
      expect(await context.accounts.getById(account.id)).not.toBe(await context.accounts.getById(account.id));
    });

    test('returns each model of all shards once, in the order of ids', async () => {
      const stored = await accountsEverywhere(context, 3);
      expect(await context.accounts.findAll()).toEqual(stored);
      expect(await context.accounts.count()).toBe(stored.length);
    });

    test('refuses to return more than the maximum', async () => {
      await accountsEverywhere(context, 2);
      expect(await context.accounts.findAll(6)).toHaveLength(6);
      await expect(context.accounts.findAll(5)).rejects.toMatchObject({ code: 'limit-exceeded', maximum: 5 });
    });

    test.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])(
      'refuses a maximum of %d, which would limit nothing',
      async (rowsMax) => {
        await expect(context.accounts.findAll(rowsMax)).rejects.toMatchObject({
          code: 'invariant-violation',
        });
      },
    );

    test('returns and counts what a condition matches on all shards', async () => {
      const stored = await accountsEverywhere(context, 2, 'ada');
      await accountsEverywhere(context, 2, 'grace');
      expect(await context.accounts.findByOwner('ada')).toEqual(stored);
      expect(await context.accounts.countByOwner('ada')).toBe(stored.length);
      expect(await context.accounts.findByOwner('nobody else')).toEqual([]);
    });

    test('returns the one model that a condition matches, on any shard', async () => {
      await accountsEverywhere(context, 1);
      const only = await context.openAccount(otherDatabaseShard, { owner: 'grace' });
      expect(await context.accounts.findOneByOwner('grace')).toEqual(only);
      expect(await context.accounts.findOneByOwner('nobody else')).toBeUndefined();
      await context.openAccount(firstShard, { owner: 'grace' });
      await expect(context.accounts.findOneByOwner('grace')).rejects.toMatchObject({ code: 'not-unique' });
    });
  });
}

/** Stores this many accounts on each shard, taking the shards in turn; returns the accounts in the order of ids. */
async function accountsEverywhere(
  context: SuiteContext,
  countPerShard: number,
  owner = 'nobody',
): Promise<readonly Account[]> {
  const shards = Array.from({ length: countPerShard }, () => [
    otherDatabaseShard,
    firstShard,
    sameDatabaseShard,
  ]).flat();
  return context.store(...shards.map((shard) => Account.open(shard, systemClock.now(), { owner })));
}

type ReadPage = (page: {
  readonly limit: number;
  readonly after?: string | undefined;
}) => Promise<Page<Account>>;

/** Registers tests of pages over all shards, including shards that share a database. */
export function describePages(context: SuiteContext): void {
  describe('pages', () => {
    test.each([1, 2, 3, 7, 8, 9, 1_000])(
      'of %i return every model once, in the order of ids',
      async (limit) => {
        const stored = await storeEverywhere(context, 8);
        const { items, pageCount } = await readAll((page) => context.accounts.findPage(page), limit);
        expect(items).toEqual(stored);
        expect(pageCount).toBe(Math.ceil(8 / limit));
      },
    );

    test('with a condition leave out what does not match', async () => {
      const stored = await storeEverywhere(context, 6, 'ada');
      await storeEverywhere(context, 6, 'grace');
      const { items } = await readAll((page) => context.accounts.findPageByOwner('ada', page), 4);
      expect(items).toEqual(stored);
    });

    test('of no models are one empty page', async () => {
      expect(await context.accounts.findPage({ limit: 10 })).toEqual({ items: [], next: undefined });
    });

    test('keep their position when models are added and removed meanwhile', async () => {
      const stored = await storeEverywhere(context, 6);
      const first = await context.accounts.findPage({ limit: 3 });
      const added = await context.openAccount(firstShard);
      await context.stage((plan) => plan.update(at(stored, 0).delete()));
      const second = await context.accounts.findPage({ limit: 10, after: first.next });
      expect([...first.items, ...second.items]).toEqual([...stored, added]);
    });

    test.each(noLimits)('refuse a limit of %s', async (limit) => {
      await expect(context.accounts.findPage({ limit })).rejects.toMatchObject({
        code: 'invalid-page-limit',
      });
    });

    test.each([1, 3, 8, 9])('of %i return every model once, from the last to the first id', async (limit) => {
      const stored = await storeEverywhere(context, 8);
      const { items } = await readAll(
        (page) => context.accounts.findPage({ ...page, direction: 'descending' }),
        limit,
      );
      expect(items).toEqual(stored.toReversed());
    });

    test.each<readonly [OrderedField, 'ascending' | 'descending', number]>([
      ['owner', 'ascending', 1],
      ['owner', 'descending', 3],
      ['quota', 'ascending', 2],
      ['quota', 'descending', 1],
      ['score', 'ascending', 1],
      ['score', 'descending', 4],
      ['dueDate', 'ascending', 1],
      ['dueDate', 'descending', 2],
      ['createdDate', 'ascending', 3],
      ['version', 'ascending', 1],
    ])(
      'ordered by %s, %s, of size %i return every model once, equal values in the order of ids',
      async (orderBy, direction, limit) => {
        const stored = await storeOfFewValues(context);
        const { items } = await readAll(
          (page) => context.accounts.findPage({ ...page, orderBy, direction }),
          limit,
        );
        const sorted = stored.toSorted((one, other) => compareBy(orderBy, one, other));
        expect(items).toEqual(direction === 'ascending' ? sorted : sorted.toReversed());
      },
    );

    test('ordered by a field keep their position when models with the same value are added meanwhile', async () => {
      const stored = await storeOfFewValues(context);
      const request = { orderBy: 'owner', limit: 5 } as const;
      const first = await context.accounts.findPage(request);
      const added = await context.openAccount(firstShard, { owner: at(first.items, 4).owner });
      const second = await context.accounts.findPage({ ...request, limit: 100, after: first.next });
      const sorted = [...stored, added].toSorted((one, other) => compareBy('owner', one, other));
      expect([...first.items, ...second.items]).toEqual(sorted);
    });

    test.each([firstShard, sameDatabaseShard, otherDatabaseShard])(
      'of %s alone leave out models of other shards',
      async (shard) => {
        const stored = await storeOfFewValues(context);
        const own = stored.filter(({ id }) => id.resolveShardIdentifier() === shard);
        expect(own.length).toBeGreaterThan(1);
        for (const limit of [1, 2, 100]) {
          const { items } = await readAll((page) => context.accounts.findPage({ ...page, shard }), limit);
          expect(items).toEqual(own);
        }
      },
    );

    test('of an unconfigured shard are refused', async () => {
      await expect(context.accounts.findPage({ limit: 1, shard: unknown })).rejects.toMatchObject({
        code: 'unknown-shard',
      });
    });

    test('refuse a cursor from another order', async () => {
      await storeOfFewValues(context);
      const { next } = await context.accounts.findPage({ limit: 1, orderBy: 'owner' });
      for (const orderBy of [undefined, 'quota', 'dueDate'] as const) {
        await expect(context.accounts.findPage({ limit: 1, after: next, orderBy })).rejects.toMatchObject({
          code: 'invalid-cursor',
        });
      }
    });

    test.each(['settings', 'nothing'])('refuse pages by %s, because it has no order', async (field) => {
      await storeEverywhere(context, 1);
      await expect(
        context.accounts.findPage({ limit: 1, orderBy: field as OrderedField }),
      ).rejects.toMatchObject({ code: 'invariant-violation' });
    });

    test.each<unknown>(['no cursor', '', null, 5, {}])('refuse the invalid cursor %j', async (cursor) => {
      for (const orderBy of [undefined, 'owner'] as const) {
        const request = { limit: 1, after: cursor as string, orderBy };
        await expect(context.accounts.findPage(request)).rejects.toMatchObject({ code: 'invalid-cursor' });
      }
    });

    test('refuse an unknown direction', async () => {
      const direction = 'upwards' as 'ascending';
      for (const orderBy of [undefined, 'owner'] as const) {
        await expect(context.accounts.findPage({ limit: 1, direction, orderBy })).rejects.toMatchObject({
          code: 'invariant-violation',
        });
      }
    });
  });
}

type OrderedField = 'owner' | 'quota' | 'score' | 'dueDate' | 'createdDate' | 'version';

/** Stores accounts on all shards, several with the same value in each field; returns them in the order of ids. */
async function storeOfFewValues(context: SuiteContext): Promise<readonly Account[]> {
  const owners = ['ada', 'Zoë', 'zoë', 'ada', '', '𝄞', '﹏'];
  const shards = [firstShard, otherDatabaseShard, sameDatabaseShard];
  const accounts = Array.from({ length: 12 }, (_unused, index) =>
    Account.open(at(shards, index % shards.length), new Date(Date.UTC(2026, 0, 1 + (index % 2))), {
      owner: at(owners, index % owners.length),
      quota: 10n ** BigInt(index % 5) - 50n,
      score: (index % 4) - 1.5,
      dueDate: new Date(Date.UTC(2026, 5, 1, 0, 0, 0, 250 * (index % 3))),
    }),
  );
  return context.store(...accounts);
}

/** Compares in the order of pages: texts by their bytes, and equal values by the id. */
function compareBy(field: OrderedField, one: Account, other: Account): number {
  const [first, second] = [one[field], other[field]];
  const order =
    typeof first === 'string'
      ? Buffer.compare(Buffer.from(first), Buffer.from(String(second)))
      : Number(first) - Number(second);
  return order || Buffer.compare(Buffer.from(one.id.value), Buffer.from(other.id.value));
}

async function storeEverywhere(
  context: SuiteContext,
  count: number,
  owner = 'nobody',
): Promise<readonly Account[]> {
  const shards = [otherDatabaseShard, firstShard, sameDatabaseShard, firstShard];
  const accounts = Array.from({ length: count }, (_unused, index) =>
    Account.open(at(shards, index % shards.length), systemClock.now(), { owner }),
  );
  return context.store(...accounts);
}

async function readAll(
  readPage: ReadPage,
  limit: number,
): Promise<{ readonly items: readonly Account[]; readonly pageCount: number }> {
  const items: Account[] = [];
  let after: string | undefined;
  let pageCount = 0;
  do {
    const page = await readPage({ limit, after });
    expect(page.items.length).toBeLessThanOrEqual(limit);
    items.push(...page.items);
    after = page.next;
    pageCount++;
  } while (after !== undefined);
  return { items, pageCount };
}

/** Registers tests which check that rows in the state `DELETED` are left out of every read. */
export function describeSoftDelete(context: SuiteContext): void {
  describe('a deleted model', () => {
    test('is excluded from reads by id', async () => {
      const { account } = await oneDeleted(context);
      expect(await context.accounts.findById(account.id)).toBeUndefined();
      expect(await context.accounts.existsById(account.id)).toBe(false);
      expect(await context.accounts.findAllByIds([account.id])).toEqual([]);
      await expect(context.accounts.getById(account.id)).rejects.toMatchObject({ code: 'entity-not-found' });
    });

    test('is excluded from lists, pages and counts', async () => {
      const { kept } = await oneDeleted(context);
      expect(await context.accounts.findAll()).toEqual([kept]);
      expect((await context.accounts.findPage({ limit: 10 })).items).toEqual([kept]);
      expect(await context.accounts.count()).toBe(1);
    });

    test('is excluded from reads by a condition', async () => {
      const { kept } = await oneDeleted(context);
      expect(await context.accounts.findByOwner('ada')).toEqual([kept]);
      expect(await context.accounts.findOneByOwner('ada')).toEqual(kept);
      expect(await context.accounts.countByOwner('ada')).toBe(1);
      expect((await context.accounts.findPageByOwner('ada', { limit: 10 })).items).toEqual([kept]);
    });

    test('keeps its events, and its id stays reserved', async () => {
      const { account } = await oneDeleted(context);
      const again = Account.blank(firstShard, systemClock.now()).variant({ id: account.id });
      await expect(context.stage((plan) => plan.add(again), once)).rejects.toMatchObject({
        code: 'stale-record',
        expectedVersion: 0,
      });
      const types = (await context.storedEvents()).map(({ eventType }) => eventType);
      expect(types).toEqual(['AccountOpenedEvent', 'AccountDeletedEvent']);
    });

    test('is left out of reads, even if it is only an entity', async () => {
      const [tag] = await context.store(Tag.of(otherDatabaseShard, 'old'));
      await context.stage((plan) => plan.update(tag.delete()));
      expect(await context.fixture.tags.findById(tag.id)).toBeUndefined();
      expect(await context.fixture.tags.count()).toBe(0);
    });
  });
}

async function oneDeleted(
  context: SuiteContext,
): Promise<{ readonly account: Account; readonly kept: Account }> {
  const account = await context.openAccount(firstShard, { owner: 'ada' });
  await context.stage((plan) => plan.update(account.delete()));
  const kept = await context.openAccount(otherDatabaseShard, { owner: 'ada' });
  return { account, kept };
}
