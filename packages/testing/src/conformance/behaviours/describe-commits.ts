import { systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { CreditAccountAction } from '../actions/credit-account-action.js';
import { Account } from '../domain/account.js';
import { decimal } from '../domain/decimal-text.js';
import { type SuiteContext, home, namespace, principal } from '../suite-context.js';

const uuidV7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Registers what a successful commit leaves behind: rows, versions and the columns of the log. */
export function describeCommits(context: SuiteContext): void {
  describe('a commit', () => {
    it('writes the state and its events together', async () => {
      const account = await context.openAccount(home, { owner: 'ada' });
      expect(await context.accounts.getById(account.id)).toEqual(account);
      const credited = await context.credit(account, '12.5');
      expect(credited).toMatchObject({ version: 2, balance: decimal('12.5') });
      expect(await context.accounts.getById(account.id)).toEqual(credited);
      const events = await context.storedEvents();
      expect(events.map(({ eventType, modelVersion }) => [eventType, modelVersion])).toEqual([
        ['AccountOpenedEvent', 1],
        ['AccountCreditedEvent', 2],
      ]);
    });

    it('fills every column of the log', async () => {
      const account = await context.openAccount();
      const earliest = systemClock.now().getTime();
      const params = { accountId: account.id, amount: '3' };
      const headers = { 'correlation-id': 'c-1', note: 'ünïcode' };
      await context.executor.execute(principal, CreditAccountAction, params, { headers });
      const [opened, credited] = await context.storedEvents();
      expect(credited).toEqual({
        id: expect.stringMatching(uuidV7),
        actionId: expect.stringMatching(uuidV7),
        ordinal: 0,
        namespace,
        actionName: 'CreditAccountAction',
        actionParams: { accountId: account.id.value, amount: '3' },
        principal: principal.name,
        modelId: account.id.value,
        modelName: 'Account',
        modelVersion: 2,
        eventType: 'AccountCreditedEvent',
        payload: { amount: decimal('3'), newBalance: decimal('3') },
        headers,
        startedDate: expect.any(Date),
        createdDate: expect.any(Date),
      });
      expect(credited?.startedDate.getTime()).toBeGreaterThanOrEqual(earliest);
      expect(credited?.startedDate.getTime()).toBeLessThanOrEqual(systemClock.now().getTime());
      expect(credited?.actionId).not.toBe(opened?.actionId);
      expect(credited?.id).not.toBe(credited?.actionId);
    });

    it('writes exactly the own fields of an event, also when it has none', async () => {
      const account = await context.openAccount();
      await context.stage((plan) => plan.update(account.delete()));
      const [, deleted] = await context.storedEvents();
      expect(deleted).toMatchObject({ eventType: 'AccountDeletedEvent', modelVersion: 2 });
      expect(deleted?.payload).toEqual({});
    });

    it('gives several events of one update one version, in the order in which they were attached', async () => {
      const account = await context.openAccount();
      await context.stage((plan) => plan.update(account.credit('1').annotate('two').credit('3')));
      const events = (await context.storedEvents()).slice(1);
      expect(
        events.map(({ eventType, ordinal, modelVersion }) => [eventType, ordinal, modelVersion]),
      ).toEqual([
        ['AccountCreditedEvent', 0, 2],
        ['AccountNotedEvent', 1, 2],
        ['AccountCreditedEvent', 2, 2],
      ]);
      expect(new Set(events.map(({ actionId }) => actionId)).size).toBe(1);
      expect(events.map(({ payload }) => payload)).toEqual([
        { amount: decimal('1'), newBalance: decimal('1') },
        { note: 'two' },
        { amount: decimal('3'), newBalance: decimal('4') },
      ]);
    });

    it('numbers the events of several models in the order in which they were staged', async () => {
      const accounts = Array.from({ length: 3 }, () => Account.open(home, systemClock.now()));
      const staged = accounts.toReversed();
      await context.stage((plan) => plan.addAll(staged));
      const events = await context.storedEvents();
      expect(events.map(({ ordinal }) => ordinal)).toEqual([0, 1, 2]);
      expect(events.map(({ modelId }) => modelId)).toEqual(staged.map(({ id }) => id.value));
    });

    it('moves the updated date, and never the created one', async () => {
      const created = new Date('2026-01-02T03:04:05.678Z');
      const [account] = await context.store(Account.open(home, created));
      expect(account).toMatchObject({ createdDate: created, updatedDate: created });
      await context.stage((plan) => plan.update(account.credit('1')));
      const read = await context.accounts.getById(account.id);
      expect(read.createdDate).toEqual(created);
      expect(read.updatedDate.getTime()).toBeGreaterThan(created.getTime());
    });
  });
}
