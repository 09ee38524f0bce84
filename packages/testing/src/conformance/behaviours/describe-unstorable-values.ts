import { systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account, type AccountFields } from '../domain/account.js';
import { type SuiteContext, home } from '../suite-context.js';

type Case = readonly [title: string, fields: Partial<AccountFields>, path: string];

const refused: readonly Case[] = [
  ['a number that is none', { score: Number.NaN }, 'Account.score'],
  ['an infinite number', { score: Number.POSITIVE_INFINITY }, 'Account.score'],
  ['an invalid date', { dueDate: new Date(Number.NaN) }, 'Account.dueDate'],
  ['a NUL character in a text', { note: 'a\u0000b' }, 'Account.note'],
  ['half of a surrogate pair in a text', { note: '\ud83d' }, 'Account.note'],
  ['a NUL character in JSON', { settings: { deep: ['\u0000'] } }, 'Account.settings.deep[0]'],
  ['a NUL character in a key of JSON', { settings: { '\u0000': 1 } }, 'Account.settings'],
  ['a number in JSON that is none', { settings: { rate: Number.NaN } }, 'Account.settings.rate'],
];

const refusedByColumns: readonly Case[] = [
  [
    'a year that the database cannot give back',
    { dueDate: new Date('+012345-01-01T00:00:00Z') },
    'Account.dueDate',
  ],
  ['a decimal with too many digits before the point', { balance: `${'9'.repeat(21)}.0` }, 'Account.balance'],
  ['a decimal with too many digits after the point', { balance: `0.${'1'.repeat(19)}` }, 'Account.balance'],
  ['a decimal with an exponent', { balance: '1e3' }, 'Account.balance'],
  ['a decimal that is not a number', { balance: 'NaN' }, 'Account.balance'],
  ['an empty decimal', { balance: '' }, 'Account.balance'],
  ['a decimal without digits', { balance: '-' }, 'Account.balance'],
  ['a decimal that is only a point', { balance: '.' }, 'Account.balance'],
  ['an integer of more than 64 bits', { quota: 2n ** 63n }, 'Account.quota'],
  ['a text that is missing', { owner: undefined as unknown as string }, 'Account.owner'],
];

/** Registers that a value which would not come back as it is, is refused when it is staged. */
export function describeUnstorableValues(context: SuiteContext): void {
  describe('staging', () => {
    it.each(refused)('refuses %s', async (_title, fields, path) => {
      expect(await storedOrRefusal(context, fields)).toMatchObject(refusalAt(path));
      expect(await context.accounts.count()).toBe(0);
    });

    it.each(refusedByColumns)('refuses %s, or gives it back as it is', async (_title, fields, path) => {
      const { typedColumns } = context.fixture;
      const outcome = await storedOrRefusal(context, fields);
      expect(outcome).toMatchObject(typedColumns ? refusalAt(path) : fields);
      expect(await context.accounts.count()).toBe(typedColumns ? 0 : 1);
    });

    it('refuses an event whose payload would not come back', async () => {
      const account = await context.openAccount();
      const staged = context.stage((plan) => plan.update(account.annotate('a\u0000b')));
      await expect(staged).rejects.toMatchObject({ code: 'unstorable-value' });
      expect(await context.accounts.getById(account.id)).toEqual(account);
    });

    it('leaves the rest of the plan usable after a refusal', async () => {
      await context.stage((plan) => {
        const unstorable = Account.open(home, systemClock.now(), { score: Number.NaN });
        expect(() => plan.add(unstorable)).toThrow(
          expect.objectContaining({ code: 'unstorable-value' }) as Error,
        );
        plan.add(Account.open(home, systemClock.now()));
      });
      expect(await context.accounts.count()).toBe(1);
      expect(await context.storedEvents()).toMatchObject([{ ordinal: 0 }]);
    });
  });
}

/** The account with these fields as it is read back, or what staging it throws. */
async function storedOrRefusal(context: SuiteContext, fields: Partial<AccountFields>): Promise<unknown> {
  const account = Account.blank(home, systemClock.now(), fields);
  let refusal: unknown;
  await context.stage((plan) => {
    try {
      plan.add(account);
    } catch (error) {
      refusal = error;
    }
  });
  return refusal ?? context.accounts.getById(account.id);
}

function refusalAt(path: string): object {
  return { code: 'unstorable-value', path: expect.stringContaining(path) as unknown };
}
