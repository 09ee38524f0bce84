import { systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { FindOwnerAction } from '../actions/find-owner-action.js';
import { Account } from '../domain/account.js';
import { Tag } from '../domain/tag.js';
import { type SuiteContext, abroad, home, namespace, principal } from '../suite-context.js';

const withoutModel = {
  ordinal: 0,
  modelId: null,
  modelName: null,
  modelVersion: null,
  eventType: null,
  payload: null,
};

/** Registers how actions are recorded that attach no event. */
export function describeActionRecords(context: SuiteContext): void {
  describe('an action without events', () => {
    it('is recorded by one row without event type', async () => {
      await context.store(Account.blank(home, systemClock.now()), Account.blank(home, systemClock.now()));
      const records = await context.storedEvents();
      expect(records).toHaveLength(1);
      expect(records[0]).toMatchObject({
        ...withoutModel,
        actionName: 'StageAction',
        namespace,
        principal: principal.name,
      });
    });

    it('is recorded when it stages an entity, which has no events', async () => {
      const [tag] = await context.store(Tag.of(home, 'red'));
      await context.stage((plan) => plan.update(tag.rename('blue')));
      expect(await context.fixture.tags.getById(tag.id)).toMatchObject({ label: 'blue', version: 2 });
      expect(await context.storedEvents()).toMatchObject([withoutModel, withoutModel]);
    });

    it('is recorded on the shard that its params name when it stages nothing', async () => {
      const account = await context.openAccount(abroad, { owner: 'grace' });
      const params = { accountId: account.id };
      expect(await context.executor.execute(principal, FindOwnerAction, params)).toBe('grace');
      expect(await context.storedEvents(home)).toEqual([]);
      const records = await context.storedEvents(abroad);
      expect(records).toHaveLength(2);
      expect(records[1]).toMatchObject({
        ...withoutModel,
        actionName: 'accounts.find-owner',
        actionParams: { accountId: account.id.value },
      });
    });

    it('is recorded on the default shard when it stages nothing and its params name no shard', async () => {
      await context.stage(() => undefined);
      expect(await context.storedEvents(home)).toHaveLength(1);
    });

    it('has rows of different ids for different actions', async () => {
      await context.stage(() => undefined);
      await context.stage(() => undefined);
      const records = await context.storedEvents();
      expect(new Set(records.map(({ id }) => id)).size).toBe(2);
      expect(new Set(records.map(({ actionId }) => actionId)).size).toBe(2);
    });

    it('leaves no record when perform throws', async () => {
      const failure = new Error('decided otherwise');
      const fails = context.stage((plan) => {
        plan.add(Account.open(home, systemClock.now()));
        throw failure;
      });
      await expect(fails).rejects.toBe(failure);
      expect(await context.storedEvents()).toEqual([]);
      expect(await context.accounts.count()).toBe(0);
    });
  });
}
