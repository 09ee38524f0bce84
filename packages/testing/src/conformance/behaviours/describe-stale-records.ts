import { systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { changeSetOf } from '../change-set-of.js';
import { Account } from '../domain/account.js';
import { Tag } from '../domain/tag.js';
import { type SuiteContext, at, home, once } from '../suite-context.js';

/** Registers that a plan with a stale row leaves nothing behind, and is tried again with fresh reads. */
export function describeStaleRecords(context: SuiteContext): void {
  describe('a stale record', () => {
    it('writes nothing when an update is stale', async () => {
      const account = await context.openAccount();
      await context.credit(account, '1');
      const stale = context.stage((plan) => plan.update(account.credit('100')), once);
      await expect(stale).rejects.toMatchObject({
        code: 'stale-record',
        model: 'Account',
        id: account.id.value,
        expectedVersion: 1,
      });
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 2 });
      expect(await context.storedEvents()).toHaveLength(2);
    });

    it('writes nothing when an update without events is stale', async () => {
      const [tag] = await context.store(Tag.of(home, 'first'));
      await context.stage((plan) => plan.update(tag.rename('second')));
      const stale = context.stage((plan) => plan.update(tag.rename('lost')), once);
      await expect(stale).rejects.toMatchObject({ code: 'stale-record', model: 'Tag' });
      expect(await context.fixture.tags.getById(tag.id)).toMatchObject({ label: 'second' });
      expect(await context.storedEvents()).toHaveLength(2);
    });

    it.each([
      ['first', 0],
      ['middle', 2],
      ['last', 4],
    ])('writes nothing when the %s of several rows is stale', async (_place, index) => {
      const accounts = await context.store(...accountsOf(5));
      const stale = at(accounts, index);
      await context.stage((plan) => plan.update(stale.credit('1')));
      const before = await context.contents();
      const addition = Account.open(home, systemClock.now());
      const refused = context.stage((plan) => {
        plan.add(addition);
        plan.updateAll(accounts.map((account) => account.credit('100')));
        plan.add(Tag.of(home, 'new'));
      }, once);
      await expect(refused).rejects.toMatchObject({ code: 'stale-record', id: stale.id.value });
      expect(await context.contents()).toEqual(before);
    });

    it('writes nothing when the row of an update is not there', async () => {
      const ghost = Account.blank(home, systemClock.now()).variant({ version: 3 });
      const refused = context.stage((plan) => {
        plan.add(Tag.of(home, 'beside'));
        plan.update(ghost.credit('1'));
      }, once);
      await expect(refused).rejects.toMatchObject({ code: 'stale-record', expectedVersion: 3 });
      expect(await context.contents()).toEqual({ accounts: [], tags: [], events: [] });
    });

    it('writes nothing when the version is ahead of the row', async () => {
      const account = await context.openAccount();
      const ahead = account.variant({ version: 7 });
      await expect(context.stage((plan) => plan.update(ahead.credit('1')), once)).rejects.toMatchObject({
        code: 'stale-record',
      });
      expect(await context.accounts.getById(account.id)).toEqual(account);
    });

    it('runs the action again when it was stale, with fresh reads', async () => {
      const account = await context.openAccount();
      let attempts = 0;
      await context.stage(async (plan) => {
        const read = await context.accounts.getById(account.id);
        if (++attempts === 1) await overtake(context, account);
        plan.update(read.credit('10'));
      });
      expect(attempts).toBe(2);
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 3 });
      // One of the opening, two of the overtaking change, one of the second attempt.
      expect(await context.storedEvents()).toHaveLength(4);
    });

    it('writes nothing of an update that was read on another timeline, where its version may be another one', async () => {
      const account = await context.openAccount();
      const manager = context.fixture.databases.transactionManager(home);
      const next = account.credit('1').variant({ version: 2, events: [] });
      const update = changeSetOf(context.accounts, next, ['{}']);
      const { timeline } = manager;
      await expect(manager.persist({ ...update, timeline: timeline - 1 })).rejects.toMatchObject({
        code: 'stale-record',
        id: account.id.value,
        expectedVersion: 1,
      });
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(await manager.persist({ ...update, timeline })).toBe('written');
    });

    it('still serves after refusals', async () => {
      const account = await context.openAccount();
      for (let round = 0; round < 30; round++) {
        const stale = account.variant({ version: 9 });
        await expect(context.stage((plan) => plan.update(stale.credit('1')), once)).rejects.toMatchObject({
          code: 'stale-record',
        });
      }
      expect(await context.credit(account, '1')).toMatchObject({ version: 2 });
    });
  });
}

function accountsOf(count: number): readonly Account[] {
  return Array.from({ length: count }, () => Account.open(home, systemClock.now()));
}

/** Changes the account outside of the execution that is running. */
async function overtake({ fixture }: SuiteContext, account: Account): Promise<void> {
  const next = account.credit('1').variant({ version: account.version + 1, events: [] });
  await fixture.databases.transactionManager(home).persist(changeSetOf(fixture.accounts, next, ['{}', '{}']));
}
