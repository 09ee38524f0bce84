import { systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account } from '../domain/account.js';
import { decimal } from '../domain/decimal-text.js';
import { Tag } from '../domain/tag.js';
import { type SuiteContext, at, home, once } from '../suite-context.js';

const modelCount = 200;
const eventCount = 300;

/** Registers that a plan stays atomic when it is too large for one statement. */
export function describeLargePlans(context: SuiteContext): void {
  describe(`a plan of ${modelCount} models with ${eventCount} events`, () => {
    it('is written as a whole', async () => {
      const accounts = await storeAccounts(context);
      await context.stage((plan) => plan.updateAll(changed(accounts)));
      const stored = await context.accounts.findAll();
      expect(stored.map(({ id }) => id.value)).toEqual(accounts.map(({ id }) => id.value));
      expect(new Set(stored.map(({ version }) => version))).toEqual(new Set([2]));
      expect(stored.filter(({ note }) => note === 'seen')).toHaveLength(eventCount - modelCount);
      const events = (await context.storedEvents()).slice(modelCount);
      expect(events.map(({ ordinal }) => ordinal)).toEqual(Array.from({ length: eventCount }, (_e, i) => i));
      expect(new Set(events.map(({ actionId }) => actionId)).size).toBe(1);
      expect(new Set(events.map(({ id }) => id)).size).toBe(eventCount);
    });

    it.each([
      ['the first', 0],
      ['one in the middle', 101],
      ['the last', modelCount - 1],
    ])('leaves nothing behind when %s is stale', async (_place, index) => {
      const accounts = await storeAccounts(context);
      const stale = at(accounts, index);
      await context.stage((plan) => plan.update(stale.credit('7')));
      const refused = context.stage((plan) => {
        plan.add(Tag.of(home, 'beside'));
        plan.updateAll(changed(accounts));
        plan.add(Account.open(home, systemClock.now()));
      }, once);
      await expect(refused).rejects.toMatchObject({ code: 'stale-record', id: stale.id.value });
      const versions = (await context.accounts.findAll()).map(({ version }) => version);
      expect(versions).toEqual(accounts.map((account) => (account === stale ? 2 : 1)));
      expect(await context.fixture.tags.count()).toBe(0);
      expect(await context.storedEvents()).toHaveLength(modelCount + 1);
    });

    it('leaves nothing behind when an addition in the middle exists already', async () => {
      const accounts = Array.from({ length: modelCount }, () => Account.open(home, systemClock.now()));
      await context.store(at(accounts, 101));
      await expect(context.stage((plan) => plan.addAll(accounts))).rejects.toMatchObject({
        code: 'constraint-violation',
      });
      expect(await context.accounts.count()).toBe(1);
      expect(await context.storedEvents()).toHaveLength(1);
    });

    it('writes many events of one model with one version', async () => {
      const account = await context.openAccount();
      let next = account;
      for (let step = 0; step < eventCount; step++) next = next.credit('1');
      await context.stage((plan) => plan.update(next));
      const events = (await context.storedEvents()).slice(1);
      expect(events.map(({ ordinal }) => ordinal)).toEqual(Array.from({ length: eventCount }, (_e, i) => i));
      expect(new Set(events.map(({ modelVersion }) => modelVersion))).toEqual(new Set([2]));
      expect(await context.accounts.getById(account.id)).toMatchObject({ balance: decimal('300') });
    });
  });
}

async function storeAccounts(context: SuiteContext): Promise<readonly Account[]> {
  return context.store(...Array.from({ length: modelCount }, () => Account.open(home, systemClock.now())));
}

/** The next versions: the first hundred with two events, the others with one. */
function changed(accounts: readonly Account[]): readonly Account[] {
  return accounts.map((account, index) =>
    index < eventCount - modelCount ? account.credit('1').annotate('seen') : account.credit('1'),
  );
}
