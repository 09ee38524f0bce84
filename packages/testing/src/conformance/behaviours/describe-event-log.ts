import { decodeEvent, systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account, AccountCreditedEvent } from '../domain/account.js';
import { decimal } from '../domain/decimal-text.js';
import { type SuiteContext, abroad, at, home, noLimits } from '../suite-context.js';

/** Registers how the history of a model is read from the log. */
export function describeEventLog(context: SuiteContext): void {
  const history = (account: Account, page: { readonly limit: number; readonly after?: string | undefined }) =>
    context.fixture.databases
      .transactionManager(account.id.resolveShardIdentifier())
      .log.findByModel({ name: 'Account', id: account.id.value }, page);

  describe('the log of a model', () => {
    it('gives its events, oldest first, with what they say', async () => {
      const account = await context.openAccount(abroad, { owner: 'ada' });
      await context.credit(account, '2');
      const { items, next } = await history(account, { limit: 10 });
      expect(next).toBeUndefined();
      const stored = await context.storedEvents(abroad);
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

    it('gives events that read back as their class', async () => {
      const account = await context.openAccount();
      await context.credit(account, '2');
      const logged = at((await history(account, { limit: 10 })).items, 1);
      const event = decodeEvent(AccountCreditedEvent, { ...logged, model: Account });
      expect(event).toBeInstanceOf(AccountCreditedEvent);
      expect(event).toEqual(new AccountCreditedEvent(account.id, decimal('2'), decimal('2')));
    });

    it.each([1, 2, 3, 5, 6, 7])(
      'comes in pages of %i without a gap, in the order of versions',
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

    it('leaves out the events of other models and the records of actions', async () => {
      const account = await context.openAccount();
      await context.openAccount();
      await context.store(Account.blank(home, systemClock.now()));
      const { items } = await history(account, { limit: 10 });
      expect(items).toMatchObject([{ modelId: account.id.value }]);
      const log = context.fixture.databases.transactionManager(home).log;
      const others = await log.findByModel({ name: 'Tag', id: account.id.value }, { limit: 10 });
      expect(others).toEqual({ items: [], next: undefined });
    });

    it.each(['a\u0000b', '\ud83d', ''])('of an id or a name that no model has is empty: %j', async (text) => {
      const { log } = context.fixture.databases.transactionManager(home);
      const account = await context.openAccount(home);
      const none = { items: [], next: undefined };
      expect(await log.findByModel({ name: 'Account', id: text }, { limit: 1 })).toEqual(none);
      expect(await log.findByModel({ name: text, id: account.id.value }, { limit: 1 })).toEqual(none);
    });

    it('has at least one event on a page, and at most 1,000', async () => {
      const account = await context.openAccount();
      await context.credit(account, '2');
      expect((await history(account, { limit: 0 })).items).toHaveLength(1);
      expect((await history(account, { limit: 1_000_000 })).items).toHaveLength(2);
    });

    it.each(noLimits)('refuses a page of %s events', async (limit) => {
      const account = await context.openAccount();
      await expect(history(account, { limit })).rejects.toMatchObject({ code: 'invariant-violation' });
    });

    it('refuses a cursor that is none', async () => {
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
