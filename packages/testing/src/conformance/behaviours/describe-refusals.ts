import { systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { changeSetOf } from '../change-set-of.js';
import { Account } from '../domain/account.js';
import { Tag } from '../domain/tag.js';
import { type SuiteContext, home } from '../suite-context.js';

/** Registers that a change set which the database refuses leaves nothing behind. */
export function describeRefusals(context: SuiteContext): void {
  describe('a refused change set', () => {
    it('writes nothing when an added id exists already', async () => {
      const account = await context.openAccount();
      const other = await context.openAccount();
      const before = await context.contents();
      const refused = context.stage((plan) => {
        plan.update(other.credit('1'));
        plan.add(Account.blank(home, systemClock.now()).variant({ id: account.id }));
        plan.add(Tag.of(home, 'beside'));
      });
      await expect(refused).rejects.toMatchObject({ code: 'constraint-violation', shard: home });
      expect(await context.contents()).toEqual(before);
    });

    it('leaves neither state nor event when an event row is broken', async () => {
      const account = await context.openAccount();
      const before = await context.contents();
      const next = account.credit('5').variant({ version: 2, events: [] });
      const broken = changeSetOf(context.accounts, next, ['{}', 'no JSON']);
      const manager = context.fixture.databases.transactionManager(home);
      await expect(manager.persist(broken)).rejects.toMatchObject({
        code: 'storage-failure',
      });
      expect(await context.contents()).toEqual(before);
    });
  });
}
