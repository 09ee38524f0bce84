import { ShardedId, systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account } from '../domain/account.js';
import { type SuiteContext, abroad, home, neighbour } from '../suite-context.js';

/** Registers the reads of a repository, over all shards. */
export function describeReads(context: SuiteContext): void {
  describe('reading', () => {
    it('gives a model by its id', async () => {
      const account = await context.openAccount(abroad);
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(await context.accounts.findById(account.id.value)).toEqual(account);
      expect(await context.accounts.existsById(account.id)).toBe(true);
    });

    it('takes ids in upper case', async () => {
      const { id } = await context.openAccount();
      const upperCase = id.value.toUpperCase();
      expect(await context.accounts.getById(upperCase)).toMatchObject({ id });
      expect(await context.accounts.findAllByIds([upperCase])).toMatchObject([{ id }]);
      expect(await context.accounts.existsById(upperCase)).toBe(true);
    });

    it('tells that there is none', async () => {
      const id = ShardedId.generate(Account, home);
      expect(await context.accounts.findById(id)).toBeUndefined();
      expect(await context.accounts.existsById(id)).toBe(false);
      await expect(context.accounts.getById(id)).rejects.toMatchObject({
        code: 'entity-not-found',
        model: 'Account',
        id: id.value,
      });
    });

    it('gives several models in the order of their ids, over shards, without those that are missing', async () => {
      const [one, two, three] = [
        await context.openAccount(home),
        await context.openAccount(abroad),
        await context.openAccount(neighbour),
      ];
      const missing = ShardedId.generate(Account, home);
      const found = await context.accounts.findAllByIds([three.id, missing, one.id.value, two.id]);
      expect(found).toEqual([three, one, two]);
      expect(await context.accounts.findAllByIds([])).toEqual([]);
    });

    it('gives executions that read a model at the same time objects of their own', async () => {
      const account = await context.openAccount(home, { settings: { tags: ['plain'] } });
      const own = [await context.openAccount(home), await context.openAccount(home)];
      const read: Account[] = [];
      const executions = own.map(async ({ id }) =>
        context.stage(async (plan) => {
          // Each has the turn of its own account, and waits for no other one.
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

    it('gives all models of all shards once each, in the order of ids', async () => {
      const stored = await accountsEverywhere(context, 3);
      expect(await context.accounts.findAll()).toEqual(stored);
      expect(await context.accounts.count()).toBe(stored.length);
    });

    it('refuses to give more than the maximum', async () => {
      await accountsEverywhere(context, 2);
      expect(await context.accounts.findAll(6)).toHaveLength(6);
      await expect(context.accounts.findAll(5)).rejects.toMatchObject({ code: 'limit-exceeded', maximum: 5 });
    });

    it('gives and counts what a condition matches on all shards', async () => {
      const stored = await accountsEverywhere(context, 2, 'ada');
      await accountsEverywhere(context, 2, 'grace');
      expect(await context.accounts.findByOwner('ada')).toEqual(stored);
      expect(await context.accounts.countByOwner('ada')).toBe(stored.length);
      expect(await context.accounts.findByOwner('nobody else')).toEqual([]);
    });

    it('gives the one model that a condition matches, wherever it stands', async () => {
      await accountsEverywhere(context, 1);
      const only = await context.openAccount(abroad, { owner: 'grace' });
      expect(await context.accounts.findOneByOwner('grace')).toEqual(only);
      expect(await context.accounts.findOneByOwner('nobody else')).toBeUndefined();
      await context.openAccount(home, { owner: 'grace' });
      await expect(context.accounts.findOneByOwner('grace')).rejects.toMatchObject({ code: 'not-unique' });
    });
  });
}

/** Stores so many accounts on each shard, in turn; gives them in the order of ids. */
async function accountsEverywhere(
  context: SuiteContext,
  countPerShard: number,
  owner = 'nobody',
): Promise<readonly Account[]> {
  const shards = Array.from({ length: countPerShard }, () => [abroad, home, neighbour]).flat();
  return context.store(...shards.map((shard) => Account.open(shard, systemClock.now(), { owner })));
}
