import { systemClock } from '@framework/core';
import { decodeEvent } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { FindOwnerAction } from '../account-actions.js';
import { Account, AccountCreditedEvent, Tag, decimal } from '../account.js';
import {
  type SuiteContext,
  otherDatabaseShard,
  at,
  firstShard,
  namespace,
  noLimits,
  principal,
} from '../suite-context.js';

/** Registers tests of reading the history of a model from the log. */
export function describeEventLog(context: SuiteContext): void {
  const history = (account: Account, page: { readonly limit: number; readonly after?: string | undefined }) =>
    context.fixture.databases
      .transactionManager(account.id.resolveShardIdentifier())
      .log.findByModel({ name: 'Account', id: account.id.value }, page);

  describe('the log of a model', () => {
    test('returns its events, oldest first, with their contents', async () => {
      const account = await context.openAccount(otherDatabaseShard, { owner: 'ada' });
      await context.credit(account, '2');
      const { items, next } = await history(account, { limit: 10 });
      expect(next).toBeUndefined();
      const stored = await context.storedEvents(otherDatabaseShard);
      expect(items).toEqual(
        stored.map((event) => ({
          id: event.id,
          actionId: event.actionId,
          actionName: event.actionName,
          principal: event.principal,
          ordinal: event.ordinal,
          modelId: account.id.value,
          modelName: 'Account',
          modelVersion: event.modelVersion,
          type: event.eventType,
          payload: event.payload,
          createdDate: event.createdDate,
        })),
      );
    });

    test('returns events that can be decoded as their class', async () => {
      const account = await context.openAccount();
      await context.credit(account, '2');
      const logged = at((await history(account, { limit: 10 })).items, 1);
      const event = decodeEvent(AccountCreditedEvent, { ...logged, model: Account });
      expect(event).toBeInstanceOf(AccountCreditedEvent);
      expect(event).toEqual(new AccountCreditedEvent(account.id, decimal('2'), decimal('2')));
    });

    test.each([1, 2, 3, 5, 6, 7])(
      'is returned in pages of %i without a gap, in the order of versions',
      async (limit) => {
        const account = await context.openAccount();
        const second = account.credit('1').annotate('both').credit('1');
        const stored = await storeNext(context, second);
        await storeNext(context, stored.credit('1').annotate('last'));
        const events = [];
        let after: string | undefined;
        do {
          const page = await history(account, { limit, after });
          expect(page.items.length).toBeLessThanOrEqual(limit);
          events.push(...page.items);
          after = page.next;
        } while (after !== undefined);
        expect(events.map(({ modelVersion, ordinal }) => [modelVersion, ordinal])).toEqual([
          [1, 0],
          [2, 0],
          [2, 1],
          [2, 2],
          [3, 0],
          [3, 1],
        ]);
      },
    );

    test('excludes the events of other models and the records of actions', async () => {
      const account = await context.openAccount();
      await context.openAccount();
      await context.store(Account.blank(firstShard, systemClock.now()));
      const { items } = await history(account, { limit: 10 });
      expect(items).toMatchObject([{ modelId: account.id.value }]);
      const log = context.fixture.databases.transactionManager(firstShard).log;
      const others = await log.findByModel({ name: 'Tag', id: account.id.value }, { limit: 10 });
      expect(others).toEqual({ items: [], next: undefined });
    });

    test.each(['a\u0000b', '\ud83d', ''])(
      'is empty for an id or a name that no model has: %j',
      async (text) => {
        const { log } = context.fixture.databases.transactionManager(firstShard);
        const account = await context.openAccount(firstShard);
        const none = { items: [], next: undefined };
        expect(await log.findByModel({ name: 'Account', id: text }, { limit: 1 })).toEqual(none);
        expect(await log.findByModel({ name: text, id: account.id.value }, { limit: 1 })).toEqual(none);
      },
    );

    test.each(noLimits)('refuses a page of %s events', async (limit) => {
      const account = await context.openAccount();
      await expect(history(account, { limit })).rejects.toMatchObject({ code: 'invalid-page-limit' });
    });

    test('refuses an invalid cursor', async () => {
      const account = await context.openAccount();
      await expect(history(account, { limit: 1, after: 'no cursor' })).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    });
  });
}

async function storeNext(context: SuiteContext, next: Account): Promise<Account> {
  let stored = next;
  await context.stage((plan) => (stored = plan.update(next)));
  return stored;
}

const withoutModel = {
  ordinal: 0,
  modelId: null,
  modelName: null,
  modelVersion: null,
  eventType: null,
  payload: null,
};

/** Registers tests of how actions without events are recorded. */
export function describeActionRecords(context: SuiteContext): void {
  describe('an action without events', () => {
    test('is recorded by one row without an event type', async () => {
      await context.store(
        Account.blank(firstShard, systemClock.now()),
        Account.blank(firstShard, systemClock.now()),
      );
      const records = await context.storedEvents();
      expect(records).toHaveLength(1);
      expect(records[0]).toMatchObject({
        ...withoutModel,
        actionName: 'StageAction',
        namespace,
        principal: principal.name,
      });
    });

    test('is recorded when it stages an entity, which has no events', async () => {
      const [tag] = await context.store(Tag.of(firstShard, 'red'));
      await context.stage((plan) => plan.update(tag.rename('blue')));
      expect(await context.fixture.tags.getById(tag.id)).toMatchObject({ label: 'blue', version: 2 });
      expect(await context.storedEvents()).toMatchObject([withoutModel, withoutModel]);
    });

    test('is recorded on the shard that its params name if it stages nothing', async () => {
      const account = await context.openAccount(otherDatabaseShard, { owner: 'grace' });
      const params = { accountId: account.id };
      expect(await context.executor.execute(principal, FindOwnerAction, params)).toBe('grace');
      expect(await context.storedEvents(firstShard)).toEqual([]);
      const records = await context.storedEvents(otherDatabaseShard);
      expect(records).toHaveLength(2);
      expect(records[1]).toMatchObject({
        ...withoutModel,
        actionName: 'accounts.find-owner',
        actionParams: { accountId: account.id.value },
      });
    });

    test('is recorded on the default shard if it stages nothing and its params name no shard', async () => {
      await context.stage(() => undefined);
      expect(await context.storedEvents(firstShard)).toHaveLength(1);
    });

    test('is recorded under ids that no other action has', async () => {
      await context.stage(() => undefined);
      await context.stage(() => undefined);
      const records = await context.storedEvents();
      expect(new Set(records.map(({ id }) => id)).size).toBe(2);
      expect(new Set(records.map(({ actionId }) => actionId)).size).toBe(2);
    });

    test('leaves no record when perform throws', async () => {
      const failure = new Error('decided otherwise');
      const fails = context.stage((plan) => {
        plan.add(Account.open(firstShard, systemClock.now()));
        throw failure;
      });
      await expect(fails).rejects.toBe(failure);
      expect(await context.storedEvents()).toEqual([]);
      expect(await context.accounts.count()).toBe(0);
    });
  });
}
