import { systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account } from '../domain/account.js';
import { Tag } from '../domain/tag.js';
import { type SuiteContext, abroad, home, once } from '../suite-context.js';

/** Registers that rows of state `DELETED` are left out of every read. */
export function describeSoftDelete(context: SuiteContext): void {
  describe('a deleted model', () => {
    it('is left out of reads by id', async () => {
      const { account } = await oneDeleted(context);
      expect(await context.accounts.findById(account.id)).toBeUndefined();
      expect(await context.accounts.existsById(account.id)).toBe(false);
      expect(await context.accounts.findAllByIds([account.id])).toEqual([]);
      await expect(context.accounts.getById(account.id)).rejects.toMatchObject({ code: 'entity-not-found' });
    });

    it('is left out of lists, pages and counts', async () => {
      const { kept } = await oneDeleted(context);
      expect(await context.accounts.findAll()).toEqual([kept]);
      expect((await context.accounts.findPage({ limit: 10 })).items).toEqual([kept]);
      expect(await context.accounts.count()).toBe(1);
    });

    it('is left out of reads by a condition', async () => {
      const { kept } = await oneDeleted(context);
      expect(await context.accounts.findByOwner('ada')).toEqual([kept]);
      expect(await context.accounts.findOneByOwner('ada')).toEqual(kept);
      expect(await context.accounts.countByOwner('ada')).toBe(1);
      expect((await context.accounts.findPageByOwner('ada', { limit: 10 })).items).toEqual([kept]);
    });

    it('keeps its id taken, and its events', async () => {
      const { account } = await oneDeleted(context);
      const again = Account.blank(home, systemClock.now()).variant({ id: account.id });
      await expect(context.stage((plan) => plan.add(again), once)).rejects.toMatchObject({
        code: 'constraint-violation',
      });
      const types = (await context.storedEvents()).map(({ eventType }) => eventType);
      expect(types).toEqual(['AccountOpenedEvent', 'AccountDeletedEvent']);
    });

    it('is left out for entities too', async () => {
      const [tag] = await context.store(Tag.of(abroad, 'old'));
      await context.stage((plan) => plan.update(tag.delete()));
      expect(await context.fixture.tags.findById(tag.id)).toBeUndefined();
      expect(await context.fixture.tags.count()).toBe(0);
    });
  });
}

async function oneDeleted(
  context: SuiteContext,
): Promise<{ readonly account: Account; readonly kept: Account }> {
  const account = await context.openAccount(home, { owner: 'ada' });
  await context.stage((plan) => plan.update(account.delete()));
  const kept = await context.openAccount(abroad, { owner: 'ada' });
  return { account, kept };
}
