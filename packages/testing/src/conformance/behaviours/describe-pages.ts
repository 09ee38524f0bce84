import { type Page, systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account } from '../domain/account.js';
import { type SuiteContext, at, abroad, home, neighbour, noLimits } from '../suite-context.js';

type ReadPage = (page: {
  readonly limit: number;
  readonly after?: string | undefined;
}) => Promise<Page<Account>>;

/** Registers pages over all shards, also over shards that share a database. */
export function describePages(context: SuiteContext): void {
  describe('pages', () => {
    it.each([1, 2, 3, 7, 8, 9, 1_000])('of %i give every model once, in the order of ids', async (limit) => {
      const stored = await storeEverywhere(context, 8);
      const { items, pageCount } = await readAll((page) => context.accounts.findPage(page), limit);
      expect(items).toEqual(stored);
      expect(pageCount).toBe(Math.ceil(8 / limit));
    });

    it('of a condition leave out what does not match', async () => {
      const stored = await storeEverywhere(context, 6, 'ada');
      await storeEverywhere(context, 6, 'grace');
      const { items } = await readAll((page) => context.accounts.findPageByOwner('ada', page), 4);
      expect(items).toEqual(stored);
    });

    it('of nothing are one empty page', async () => {
      expect(await context.accounts.findPage({ limit: 10 })).toEqual({ items: [], next: undefined });
    });

    it('keep their place when models are added and removed meanwhile', async () => {
      const stored = await storeEverywhere(context, 6);
      const first = await context.accounts.findPage({ limit: 3 });
      const added = await context.openAccount(home);
      await context.stage((plan) => plan.update(at(stored, 0).delete()));
      const second = await context.accounts.findPage({ limit: 10, after: first.next });
      expect([...first.items, ...second.items]).toEqual([...stored, added]);
    });

    it('have at least one item and at most 1,000', async () => {
      await storeEverywhere(context, 2);
      expect((await context.accounts.findPage({ limit: 0 })).items).toHaveLength(1);
      expect((await context.accounts.findPage({ limit: 1_000_000 })).items).toHaveLength(2);
    });

    it.each(noLimits)('refuse a limit of %s', async (limit) => {
      await expect(context.accounts.findPage({ limit })).rejects.toMatchObject({
        code: 'invariant-violation',
      });
    });

    it('refuse a cursor that is none', async () => {
      await expect(context.accounts.findPage({ limit: 1, after: 'no cursor' })).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    });
  });
}

async function storeEverywhere(
  context: SuiteContext,
  count: number,
  owner = 'nobody',
): Promise<readonly Account[]> {
  const shards = [abroad, home, neighbour, home];
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
